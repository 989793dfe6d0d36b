"""The command line."""

ASKED = "_NLPCTL_COMPLETE"  # the variable by which a shell asks for completion; Typer makes its name of the program's
