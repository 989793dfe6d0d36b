"""nlpctl's own networks, small enough to train from scratch: BiLSTM, TextCNN, bag of embeddings, BiGRU.

They are PaddleNLP models with a config of their own, so they are built, loaded and saved like all others.
What they have in common is in common.py.
"""
