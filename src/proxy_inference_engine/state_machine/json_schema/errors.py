"""Why a schema is refused. Knows nothing of HTTP: the reason is one plain sentence that a client may read."""


class UnenforceableSchema(Exception):
    """A schema, or one keyword of it, that cannot bind what is generated."""

    def __init__(self, path: str, keyword: str, reason: str) -> None:
        super().__init__(f"{path or '/'}: {keyword}: {reason}" if keyword else f"{path or '/'}: {reason}")
        self.path = path
        self.keyword = keyword
        self.reason = reason


class ImpossibleSchema(UnenforceableSchema):
    """No value satisfies the schema: it contradicts itself."""


class NotEnforceable(Exception):
    """Raised where one keyword cannot be enforced; a weaker schema may stand in for it where that is allowed."""

    def __init__(self, reason: str, weaker: object = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.weaker = weaker
