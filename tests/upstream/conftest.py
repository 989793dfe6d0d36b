import nlpctl  # noqa: F401  (imports zlib, which has to come before Paddle)
