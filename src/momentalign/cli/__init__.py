"""The command line: parses, calls, prints. Heavy imports stand inside the commands, so that help is instant.

Exit codes: 0 done, 2 for what the user can mend (one line on standard error), 130 on ^C, 143 on SIGTERM.
"""

from momentalign.cli.main import app, main

__all__ = ["app", "main"]
