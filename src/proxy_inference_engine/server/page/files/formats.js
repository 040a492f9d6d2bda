// Formats to begin with, one list a kind: each with a question that shows what it is for.

const text = (value) => JSON.stringify(value, null, 2);

export const FORMATS = {
  schema: [
    {
      title: "A person",
      question: "Invent a person who lives in Lisbon.",
      text: text({
        type: "object",
        properties: {
          name: { type: "string", maxLength: 40 },
          age: { type: "integer", minimum: 0, maximum: 120 },
          email: { type: "string", format: "email", maxLength: 40 },
          languages: { type: "array", items: { enum: ["Portuguese", "English", "French", "Spanish"] }, minItems: 1, maxItems: 3 },
        },
        required: ["name", "age", "email", "languages"],
      }),
    },
    {
      title: "What a review says",
      question: "Review: The screen is bright and sharp, but the battery was empty by noon. I would still buy it.",
      text: text({
        type: "object",
        properties: {
          sentiment: { enum: ["positive", "mixed", "negative"] },
          stars: { type: "integer", minimum: 1, maximum: 5 },
          praised: { type: "array", items: { type: "string", maxLength: 30 }, maxItems: 3 },
          complained: { type: "array", items: { type: "string", maxLength: 30 }, maxItems: 3 },
        },
        required: ["sentiment", "stars", "praised", "complained"],
      }),
    },
    {
      title: "An order, with definitions",
      question: "I would like two large margheritas and a lemonade, delivered to 12 Elm Street.",
      text: text({
        type: "object",
        properties: {
          items: { type: "array", items: { $ref: "#/$defs/item" }, minItems: 1, maxItems: 4 },
          delivery: {
            anyOf: [{ type: "null" }, { type: "object", properties: { street: { type: "string", maxLength: 40 } }, required: ["street"] }],
          },
        },
        required: ["items", "delivery"],
        $defs: {
          item: {
            type: "object",
            properties: {
              dish: { type: "string", maxLength: 24 },
              size: { enum: ["small", "large"] },
              count: { type: "integer", minimum: 1, maximum: 9 },
            },
            required: ["dish", "size", "count"],
          },
        },
      }),
    },
    {
      title: "Items that differ",
      question: "Name five colours.",
      text: text({
        type: "object",
        properties: {
          colours: { type: "array", items: { type: "string", maxLength: 20 }, uniqueItems: true, minItems: 5, maxItems: 5 },
        },
        required: ["colours"],
      }),
    },
    {
      title: "One that cannot be enforced",
      question: "Name five different prices.",
      text: text({
        type: "object",
        properties: { prices: { type: "array", items: { type: "number" }, uniqueItems: true } },
        required: ["prices"],
      }),
    },
  ],
  regex: [
    { title: "A date", question: "When did the first person walk on the Moon?", text: "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])" },
    { title: "A version", question: "Name a version of Python.", text: "v\\d{1,2}\\.\\d{1,2}(\\.\\d{1,2})?" },
    { title: "Yes or no, and why", question: "Is a whale a fish?", text: "(Yes|No), because [a-z ,']{5,80}\\." },
  ],
  lark: [
    {
      title: "Sums",
      question: "Write a sum that has the result 12.",
      text: 'start: number (" + " | " - ") number (" + " number)* " = " number\nnumber: /[1-9][0-9]{0,2}/',
    },
    {
      title: "A move in chess",
      question: "Open the game as White.",
      text: 'start: piece? square\npiece: "N" | "B" | "R" | "Q" | "K"\nsquare: /[a-h][1-8]/',
    },
    {
      title: "A query",
      question: "Find the names of the users who are older than 30.",
      text: 'start: "SELECT " columns " FROM " table (" WHERE " condition)?\ncolumns: column ("," " " column)*\ncolumn: "name" | "age" | "email"\ntable: "users" | "orders"\ncondition: column " " ("=" | "<" | ">") " " /[0-9]{1,3}/',
    },
  ],
};
