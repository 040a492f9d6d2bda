"""The page at `/`: files of the package, written for browsers as they are, and nothing from elsewhere."""
