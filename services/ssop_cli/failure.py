"""How commands fail: one line that says what went wrong and what to do, and an exit code.

Exit codes: 0 done; 1 the job failed; 2 the command line is wrong; 3 a mesh runs already; 4 no mesh answers;
5 the mesh refused the call; 78 settings or files can't be used; 130 interrupted.
"""

from typing import Final

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_RUNS_ALREADY: Final = 3
EXIT_NO_MESH: Final = 4
EXIT_REFUSED: Final = 5
EXIT_SETTINGS: Final = 78
EXIT_INTERRUPTED: Final = 130


def cause_of(error: Exception) -> str:
    """Why a file can't be used: of what the system says, the words, and neither number nor path."""
    return getattr(error, "strerror", None) or str(error)


class CommandError(Exception):
    """A command can't go on. `advice` is what the user can do; empty where the message says it."""

    def __init__(self, message: str, *, advice: str = "", exit_code: int = EXIT_FAILED, reason: str = "FAILED") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.exit_code = exit_code
        self.reason = reason
