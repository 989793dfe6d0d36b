"""The words of model cards, in English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping

LANGUAGES = ("en", "zh")


def words(language: str) -> Mapping[str, str]:
    """What a card says, by name. `language`: one of LANGUAGES."""
    return {name: texts[LANGUAGES.index(language)] for name, texts in _WORDS.items()}


_WORDS: Mapping[str, tuple[str, str]] = {
    "comma": (", ", "、"),
    "colon": (": ", "："),
    # -- what it does --
    "does": ("What it does", "用途"),
    "task": ("Task", "任务"),
    "network": ("Network", "网络"),
    "parameters": ("{} parameters", "{} 个参数"),
    "scratch": ("{}, trained from scratch", "{}，从零训练"),
    "began": ("{}, trained further", "{}，在其上继续训练"),
    "ensemble": ("An ensemble, which averages the answers of {} models", "集成：对 {} 个模型的答案取平均"),
    "unknown_model": (
        "Known are only the files of this folder. Data, training and scores are in the run that it came from.",
        "已知的只有这个目录中的文件。数据、训练和得分在它所属的运行中。",
    ),
    "made_of": (
        "An export: graphs made of the trained network. The scores below are those of the network.",
        "这是一个导出：由训练好的网络生成的图。下面的得分是网络本身的。",
    ),
    # -- labels --
    "labels": ("Labels", "标签"),
    "thresholds": ("label and threshold", "标签与阈值"),
    "more_labels": ("... and {} more, in `labels.json`.", "……另有 {} 个，见 `labels.json`。"),
    # -- data --
    "data": ("Training data", "训练数据"),
    "file": ("file", "文件"),
    "split": ("split", "部分"),
    "rows": ("rows", "行数"),
    "data_set": (
        "The data set {} (PaddleNLP or Hugging Face), by splits.",
        "数据集 {}（PaddleNLP 或 Hugging Face），按部分。",
    ),
    "skipped": ("{} bad rows of {} were skipped.", "{1} 中有 {0} 个坏行被跳过。"),
    # -- procedure --
    "procedure": ("Training procedure", "训练过程"),
    "what": ("what", "项目"),
    "value": ("value", "值"),
    "steps": ("steps", "步数"),
    "epochs": ("epochs", "轮数"),
    "step_rows": ("rows of a step", "每步行数"),
    "kept": ("checkpoint kept", "保留的检查点"),
    "kept_by": ("step {:,}, chosen by {} on dev", "第 {:,} 步，按 dev 上的 {} 选出"),
    "seed": ("seed", "随机种子"),
    "device": ("device", "设备"),
    "processes": ("{} x {} processes", "{} × {} 个进程"),
    "time": ("time", "时长"),
    "ended": ("ended", "结束于"),
    "commit": ("git commit", "git 提交"),
    # -- scores --
    "scores": ("Scores", "得分"),
    "interval": ("95 % interval", "95 % 区间"),
    "ends": ("{} to {}", "{} 至 {}"),
    "score": ("score", "得分项"),
    "per_label": ("By label, on {}", "各标签，{}"),
    "label": ("label", "标签"),
    "more_scores": ("... and {} more labels, in `metrics.json`.", "……另有 {} 个标签，见 `metrics.json`。"),
    "interval_is": (
        "The interval is that of the percentile bootstrap over the rows: how far the score would move on other rows of "
        "the same kind. It does not cover the seed of the training.",
        "区间由对行的百分位自助法得出：换成另一批同类的行，得分会变动多少。它不包含训练随机种子的影响。",
    ),
    "dev_is": (
        "As far as dev chose checkpoint, thresholds or settings, its score is optimistic, and so is its interval.",
        "dev 若用来选择检查点、阈值或设置，它的得分就偏乐观，区间也一样。",
    ),
    "calibrated": (
        "`ece` is the expected calibration error of the probabilities, which were fitted to labelled rows; before: {}.",
        "`ece` 是概率的期望校准误差，概率已用带标签的行校准；校准之前：{}。",
    ),
    "not_scored": ("Nothing was scored: there is no dev or test data.", "没有评分：没有 dev 或 test 数据。"),
    "graphs": ("Graphs", "图"),
    "graph": ("graph", "图文件"),
    "engine": ("engine", "引擎"),
    "precision": ("precision", "精度"),
    "agreement": ("same decisions", "相同判定"),
    "difference": ("largest difference", "最大差异"),
    "compared": (
        "Each graph was compared with the network on {} rows when it was made.",
        "每个图在生成时都与网络在 {} 行上做过比较。",
    ),
    "dev_rows": ("{} on the first {} rows of dev", "dev 前 {1} 行上的 {0}"),
    "chosen": ("Chosen by speed and score: {} {}.", "按速度和得分选出：{} {}。"),
    # -- slices --
    "slices": ("Slices below the rest", "低于其余部分的切片"),
    "slices_are": (
        "Rows of {} whose {} lies below that of all other rows, by a 95 % interval without 0. {} slices were compared; "
        "of 40 without any difference about one is listed too:",
        "{} 中 {} 低于其余各行、且差值的 95 % 区间不含 0 的行。共比较 {} 个切片；40 个毫无差别的约有一个也会列出：",
    ),
    "no_slices": (
        "No label and no length of {} lies below the rest by more than chance explains.",
        "{} 中没有哪个标签或长度低于其余部分的程度超出随机波动。",
    ),
    "by": ("by", "按"),
    "of_label": ("label", "标签"),
    "of_length": ("length", "长度"),
    "slice": ("slice", "切片"),
    "above": ("above the rest", "与其余之差"),
    # -- limits --
    "limits": ("Limits", "局限"),
    "cut": (
        "Text beyond {} tokens is cut. How many training rows that touches was not recorded.",
        "超过 {} 个词元的文本会被截断。有多少训练行受影响没有记录。",
    ),
    "windows": (
        "Text beyond {} tokens is read in overlapping windows; what depends on words further apart is not seen.",
        "超过 {} 个词元的文本用重叠的窗口读取；相隔更远的词之间的关系看不到。",
    ),
    "few": (
        "Labels with fewer than {} rows of {}, so that their scores say little: {}.",
        "{1} 中少于 {0} 行、因而得分意义不大的标签：{2}。",
    ),
    "never": ("Labels of {} of which no row is predicted correctly: {}.", "{} 中没有一行被正确预测的标签：{}。"),
    "no_test": (
        "There is no test split. The scores on dev flatter, since dev also chose the checkpoint.",
        "没有 test 部分。dev 上的得分偏高，因为检查点也是由 dev 选出的。",
    ),
    "no_test_nor_choice": (
        "There is no test split. The scores on dev flatter as far as settings were chosen by them.",
        "没有 test 部分。如果设置是按 dev 上的得分选出的，这些得分就偏高。",
    ),
    "languages": ("The language of the training texts: {}.", "训练文本的语言：{}。"),
    "no_languages": ("The language of the training texts was not recorded.", "训练文本的语言没有记录。"),
    "one_seed": (
        "One training with one seed; another seed gives another model, whose scores may differ by more than the "
        "intervals.",
        "只用一个随机种子训练了一次；换一个种子会得到另一个模型，得分之差可能大于区间。",
    ),
    "incident": ("During the training: {} at step {:,}.", "训练期间：第 {1:,} 步发生 {0}。"),
    "no_license": ("The license was not given.", "没有给出许可证。"),
    # -- how to run --
    "run": ("How to run", "如何使用"),
    "with": (
        "With nlpctl {} or later, in the folder that holds `{}`:",
        "使用 nlpctl {} 或更高版本，在 `{}` 所在的目录中：",
    ),
    "row_keys": ("A row has the keys {}.", "每行的键：{}。"),
    # -- reproduce --
    "reproduce": ("Reproduce and cite", "复现与引用"),
    "recipe": (
        "This is the recipe of the run, its paths cut to their names. `nlpctl train` with it, the files above and the "
        "seed repeats the run.",
        "这是该运行的配方，路径只保留名称。用它、上述文件和同一种子执行 `nlpctl train`，即可重复这次运行。",
    ),
    "other_recipe": (
        "This is the recipe of the run, its paths cut to their names. `nlpctl train` with it does not repeat the run, "
        "which was made by {}.",
        "这是该运行的配方，路径只保留名称。仅用它执行 `nlpctl train` 并不能重复这次运行；它由 {} 得到。",
    ),
    "cite": (
        "To cite the model, name it with the hashes of its data and the seed.",
        "引用这个模型时，请写明其名称、数据的哈希值和随机种子。",
    ),
}
