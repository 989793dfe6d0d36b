#!/usr/bin/env python3
"""Generate the data of recipes/samples: small files in the formats of tagging, matching, search and reading.

    python scripts/make_sample_data.py [FOLDER]     (default: recipes/samples)

The sentences are templates filled with invented names. They show each format and let every task be tried without a
download; a model trained on them is of no other use. train and dev are made alike, so dev scores say little.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

SEED = 20261122
TAGGED = {"train": 400, "dev": 80}
READ = {"train": 80, "dev": 20}  # texts, each with three questions

SURNAMES = "王 李 张 刘 陈 杨 赵 黄 周 吴 徐 孙 马 朱 胡 郭 何 林 高 罗".split()
GIVEN = "伟 芳 娜 敏 静 磊 洋 勇 艳 杰 娟 涛 明 超 秀英 建国 志强 晓东 雨桐 子涵 思远 文博 佳怡 浩然".split()
PLACES = "北京 上海 广州 深圳 杭州 成都 武汉 西安 南京 重庆 天津 苏州 青岛 长沙 厦门 昆明 大连 哈尔滨".split()
PARTS = "华信 远景 东方 新源 中科 启明 海纳 天工 宏图 蓝图".split()
KINDS = "科技公司 研究院 银行 医院 出版社 大学".split()
BRANDS = "星河 云雀 极光 青鸟 飞羽 晨曦 山海 月影".split()
THINGS = "手机 耳机 音箱 手表 相机 平板".split()

# word/tag in the tags of LAC, the analyser inside jieba; {PER} and the like are filled. PROD is a tag that LAC lacks.
SENTENCES = (
    "{PER}/PER 昨天/TIME 从/p {LOC}/LOC 飞/v 到/v {LOC2}/LOC 。/w",
    "{ORG}/ORG 在/p {LOC}/LOC 发布/v 了/u {PROD}/PROD 。/w",
    "我/r 上周/TIME 买/v 了/u 一台/m {PROD}/PROD ，/w 很/d 满意/a 。/w",
    "{PER}/PER 是/v {ORG}/ORG 的/u 工程师/n 。/w",
    "{PER}/PER 和/c {PER2}/PER 都/d 喜欢/v {PROD}/PROD 。/w",
    "记者/n {PER}/PER 今天/TIME 从/p {ORG}/ORG 获悉/v 。/w",
    "{LOC}/LOC 的/u 天气/n 很/d 好/a 。/w",
    "请问/v {PROD}/PROD 在/p {LOC}/LOC 有/v 门店/n 吗/xc ？/w",
    "{ORG}/ORG 明年/TIME 将/d 迁往/v {LOC}/LOC 。/w",
    "{PER}/PER 的/u {PROD}/PROD 坏/a 了/u ，/w 要/v 寄/v 到/v {LOC}/LOC 维修/v 。/w",
    "这/r 款/q 产品/n 不/d 如/v {PROD}/PROD 好用/a 。/w",
    "会议/n 由/p {ORG}/ORG 主持/v ，/w {PER}/PER 出席/v 。/w",
)

LAC_TAGS = "a ad an c d f m n nr ns nt nw nz p q r s t u v vd vn w xc PER LOC ORG TIME".split()

# Every line: ways to ask the same thing.
QUESTIONS = (
    "怎么申请退款|我想退款怎么办|退款要在哪里提交|钱怎么退给我|如何把钱退回来",
    "快递什么时候到|我的包裹几天能到|物流要多久|多长时间可以收到货|大概哪天能送到",
    "怎么修改收货地址|地址填错了怎么改|能换一个收件地址吗|订单地址可以改吗|我要改寄送地址",
    "忘记密码怎么办|密码想不起来了|如何重置登录密码|登录密码忘了怎么找回|怎样把密码改掉",
    "可以开发票吗|怎么开电子发票|发票在哪里申请|需要开票怎么操作|能给我一张发票吗",
    "优惠券怎么用|折扣券在哪里使用|为什么优惠券用不了|券要怎么抵扣|如何使用代金券",
    "怎么联系人工客服|我要找真人客服|客服电话是多少|如何转接人工|有没有人工服务",
    "商品坏了能换吗|收到的东西有破损怎么换|质量问题可以换货吗|坏的产品怎么更换|我想换一件新的",
    "会员怎么取消|如何关闭自动续费|不想继续开会员了|自动扣费怎么停|取消订阅在哪里",
    "支持货到付款吗|能不能收到货再付钱|可以到付吗|付款方式有到付吗|签收时付钱行不行",
    "积分可以换什么|积分怎么兑换礼品|我的积分能用来干嘛|用积分能换东西吗|在哪里兑换积分",
    "手机号换了怎么办|如何更换绑定手机|绑定的号码怎么改|换手机号怎么登录|想改绑一个新号码",
)
TEXT = "{PER}{YEAR}年出生于{LOC}，毕业后加入{ORG}，主要研究{TOPIC}。{PER}现在住在{LOC2}，业余时间喜欢{HOBBY}。"
ASKED = (("{PER}出生在哪一年？", "{YEAR}年"), ("{PER}在哪里工作？", "{ORG}"), ("{PER}喜欢做什么？", "{HOBBY}"))
TOPICS = "语音识别 机器翻译 图像处理 材料科学 海洋生物 城市规划".split()
HOBBIES = "爬山 下棋 摄影 游泳 书法 打羽毛球".split()


def names(chance: random.Random) -> dict[str, str]:
    """A filler for every kind of gap."""
    people = [chance.choice(SURNAMES) + given for given in chance.sample(GIVEN, 2)]
    here, there = chance.sample(PLACES, 2)
    product = chance.choice(BRANDS) + chance.choice(THINGS) + chance.choice(["", "2", "Pro"])
    return {
        "PER": people[0], "PER2": people[1], "LOC": here, "LOC2": there, "PROD": product,
        "ORG": chance.choice(PARTS) + chance.choice(KINDS), "YEAR": str(chance.randint(1950, 2000)),
        "TOPIC": chance.choice(TOPICS), "HOBBY": chance.choice(HOBBIES),
    }  # fmt: skip


def tagged(split: str) -> list[list[tuple[str, str]]]:
    """Sentences as (word, tag)."""
    chance = random.Random(f"{SEED} tagged {split}")
    made = []
    for _ in range(TAGGED[split]):
        filled = chance.choice(SENTENCES).format(**names(chance))
        made.append([tuple(pair.rsplit("/", 1)) for pair in filled.split(" ")])
    return made


def lexical(sentences: list[list[tuple[str, str]]]) -> str:
    """Every word has a tag, written as LAC writes it: PER-B, PER-I."""
    return "\n\n".join(
        "\n".join(f"{c}\t{tag}-{'B' if i == 0 else 'I'}" for word, tag in words for i, c in enumerate(word))
        for words in sentences
    )


def entities(sentences: list[list[tuple[str, str]]]) -> str:
    """Names alone have a tag: B-PER, I-PER; everything else is O."""

    def plain(found: re.Match[str]) -> str:
        kind, place = found[1].split("-")
        return f"\t{place}-{kind}" if kind in ("PER", "LOC", "ORG", "PROD") else "\tO"

    return re.sub(r"\t(\w+-[BI])$", plain, lexical(sentences), flags=re.M)


def pairs() -> dict[str, str]:
    """Tables of two texts and whether they mean the same, half of each."""
    chance = random.Random(f"{SEED} pairs")
    groups = [line.split("|") for line in QUESTIONS]
    same = [(a, b, 1) for group in groups for a in group for b in group if a < b]
    other = []
    for a, _, _ in same:
        group = chance.choice([group for group in groups if a not in group])
        other.append((a, chance.choice(group), 0))
    rows = [*same, *other]
    chance.shuffle(rows)
    lines = ["\t".join(map(str, row)) for row in rows]
    cut = len(lines) * 3 // 4
    return {split: "\n".join(["text\ttext_pair\tlabel", *part]) for split, part in
            (("train", lines[:cut]), ("dev", lines[cut:]))}  # fmt: skip


def reading(split: str) -> str:
    chance = random.Random(f"{SEED} reading {split}")
    lines = []
    for _ in range(READ[split]):
        filling = names(chance)
        context = TEXT.format(**filling)
        for question, answer in ASKED:
            text = answer.format(**filling)
            row = {"question": question.format(**filling), "context": context,
                   "answers": [{"text": text, "answer_start": context.index(text)}]}  # fmt: skip
            lines.append(json.dumps(row, ensure_ascii=False))
    return "\n".join(lines)


def build() -> dict[str, str]:
    """The content of every file, by name."""
    labels = [f"{tag}-{place}" for tag in [*LAC_TAGS, "PROD"] for place in "BI"]
    files = {"lexical_labels.txt": "\n".join([*labels, "O"])}
    for split in ("train", "dev"):
        sentences = tagged(split)
        files[f"lexical_{split}.txt"] = lexical(sentences)
        files[f"entities_{split}.txt"] = entities(sentences)
        files[f"reading_{split}.jsonl"] = reading(split)
        files[f"pairs_{split}.tsv"] = pairs()[split]
    return {name: text + "\n" for name, text in files.items()}


if __name__ == "__main__":
    default = Path(__file__).resolve().parent.parent / "recipes" / "samples"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=default)
    target = parser.parse_args().folder
    target.mkdir(parents=True, exist_ok=True)
    for name, text in build().items():
        (target / name).write_text(text, encoding="utf-8")
