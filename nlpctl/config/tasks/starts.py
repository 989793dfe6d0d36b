"""What new recipes of several tasks begin with."""

from __future__ import annotations

from nlpctl.config.tasks.info import Start

SCRATCH = "model.from_scratch."

WITH_CRF = (
    Start("model.head", "crf", "scores whole sequences of tags: learns that no I-PER follows an O"),
    Start("optimizer.groups", [{"match": "crf", "learning_rate": 0.01}], "transitions start at random: they need more"),
    Start("training.metric_for_best_model", "f1", "type and both ends right"),
)

TRANSFORMER = (
    Start(f"{SCRATCH}architecture", "ernie"),
    Start(f"{SCRATCH}hidden_size", 128),
    Start(f"{SCRATCH}num_hidden_layers", 2),
    Start(f"{SCRATCH}num_attention_heads", 4),
    Start(f"{SCRATCH}intermediate_size", 512),
    Start("training.learning_rate", 1e-3, "a network from scratch needs a far larger one than a pretrained encoder"),
)

CONVOLUTION = (
    Start(f"{SCRATCH}architecture", "textcnn", "bilstm reads the order of words too, and is slower"),
    Start(f"{SCRATCH}unit", "words", "Chinese is split by jieba"),
    Start(f"{SCRATCH}vocab_size", 20000),
    Start(f"{SCRATCH}dropout", 0.5, "few rows and many parameters: without dropout the network overfits"),
    Start("training.learning_rate", 1e-3, "a network from scratch needs a far larger one than a pretrained encoder"),
)

RECURRENT = (
    Start(f"{SCRATCH}architecture", "bigru"),
    Start(f"{SCRATCH}num_hidden_layers", 2),
    Start(f"{SCRATCH}dropout", 0.5, "few sentences and many parameters: without dropout the network overfits"),
    Start("training.learning_rate", 2e-3, "a network from scratch needs a far larger one than a pretrained encoder"),
)
