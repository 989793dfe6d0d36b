"""jieba's LAC written anew in NumPy, from its reader_small.py, nets.py and utils.py: no code of nlpctl, no Paddle.

It reads every character as it stands. jieba's own code imports paddle.fluid, which Paddle no longer has.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HIDDEN = 128


class JiebaLac:
    """`folder`: jieba/lac_small."""

    def __init__(self, folder: Path):
        self.words = {word: int(number) for number, word in _pairs(folder / "word.dic")}
        self.tags = {int(number): tag for number, tag in _pairs(folder / "tag.dic")}
        self.arrays = {file.name: _tensor(file) for file in (folder / "model_baseline").iterdir()}

    def cut(self, text: str) -> list[tuple[str, str]]:
        """Words with their tags, as jieba.posseg.cut(text, use_paddle=True) gave them."""
        tags = [self.tags[tag] for tag in self._path(self._emissions(text))]
        words: list[list[str]] = []
        for place, tag in enumerate(tags):
            if not words or tag.endswith("-B") or (tag == "O" and tags[place - 1] != "O"):
                words.append(["", tag.split("-")[0]])
            words[-1][0] += text[place]
        return [(word, tag) for word, tag in words]

    def _emissions(self, text: str) -> np.ndarray:
        ids = [self.words.get(character, self.words["OOV"]) for character in text]
        hidden = self.arrays["word_emb"][ids]
        for layer in (0, 2):
            there, back = self._linear(hidden, layer), self._linear(hidden, layer + 1)
            hidden = np.concatenate([self._gru(there, layer), self._gru(back[::-1], layer + 1)[::-1]], axis=1)
        return self._linear(hidden, 4)

    def _linear(self, inputs: np.ndarray, number: int) -> np.ndarray:
        return inputs @ self.arrays[f"fc_{number}.w_0"] + self.arrays[f"fc_{number}.b_0"]

    def _gru(self, inputs: np.ndarray, number: int) -> np.ndarray:
        flat = self.arrays[f"gru_{number}.w_0"].ravel()
        gates, candidate = flat[: 2 * HIDDEN**2].reshape(HIDDEN, -1), flat[2 * HIDDEN**2 :].reshape(HIDDEN, -1)
        state, states = np.zeros(HIDDEN, np.float32), []
        for step in inputs + self.arrays[f"gru_{number}.b_0"]:
            update, reset = np.split(1 / (1 + np.exp(-(step[: 2 * HIDDEN] + state @ gates))), 2)
            state = (1 - update) * state + update * np.tanh(step[2 * HIDDEN :] + (reset * state) @ candidate)
            states.append(state)
        return np.stack(states)

    def _path(self, emissions: np.ndarray) -> list[int]:
        start, stop, between = self.arrays["crfw"][0], self.arrays["crfw"][1], self.arrays["crfw"][2:]
        scores, before = start + emissions[0], []
        for row in emissions[1:]:
            paths = scores[:, None] + between
            before.append(paths.argmax(0))
            scores = paths.max(0) + row
        path = [int((scores + stop).argmax())]
        for back in reversed(before):
            path.append(int(back[path[-1]]))
        return path[::-1]


def _pairs(file: Path) -> list[list[str]]:
    lines = file.read_text(encoding="utf-8").split("\n")
    return [line.split("\t") for line in lines if line.count("\t") == 1]


def _tensor(file: Path) -> np.ndarray:
    """A LoDTensor of Paddle 1.x in float32: versions and levels, the length of a description, the numbers."""
    data = file.read_bytes()
    size = int.from_bytes(data[16:20], "little")
    description, at, dims = data[20 : 20 + size], 2, []
    while at < size:  # 0x08 type, then 0x10 and a varint for each dimension
        assert description[at] == 0x10
        at, value, shift = at + 1, 0, 0
        while True:
            value |= (description[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if description[at - 1] < 0x80:
                break
        dims.append(value)
    return np.frombuffer(data[20 + size :], np.float32).reshape(dims)
