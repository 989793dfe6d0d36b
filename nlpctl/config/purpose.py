"""What a command wants of the model that a user names.

    train    a recipe with everything that a training needs
    apply    a trained model that answers; the training data may be gone
    embed    an encoder for vectors of texts: whatever head a folder of PaddleNLP or Transformers has is not used
    observe  a network with or without a head: one without gives vectors of texts
"""

from __future__ import annotations

from typing import Literal

Purpose = Literal["train", "apply", "embed", "observe"]
