"""Whatever computes answers: the network, Paddle Inference, ONNX Runtime; the choice between them; the pipeline."""
