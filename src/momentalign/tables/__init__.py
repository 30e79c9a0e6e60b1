"""Tables of users: files of many formats as rows of numbers."""
