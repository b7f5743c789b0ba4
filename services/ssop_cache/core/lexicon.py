"""Words that the guards of similar answers know, English and Chinese."""

from typing import Final


def _listed(text: str) -> list[str]:
    return text.split()


NEGATIONS: Final = frozenset(
    _listed(
        "not no never none nobody nothing nowhere neither nor without cannot hardly barely scarcely non "
        "except unless refuse deny lack absent false"
    )
) | frozenset("不没無无非未别莫勿毋否")

# Either side of a pair turns a question round.
POLARITY: Final = frozenset(
    _listed(
        "increase decrease rise fall up down raise lower grow shrink gain lose win loss profit buy sell "
        "import export open "
        "close start stop begin end enable disable allow forbid accept reject include exclude add remove "
        "install uninstall "
        "before after above below over under in out on off first last left right north south east west "
        "good bad best worst "
        "better worse cheap expensive fast slow hot cold high low max min maximum minimum most least "
        "more less largest "
        "smallest big small long short early late new old safe dangerous legal illegal possible impossible "
        "true positive "
        "negative pass fail success failure love hate like dislike happy sad hard easy full empty push "
        "pull encrypt decrypt "
        "upload download lend borrow deposit withdraw arrive depart morning evening day night earliest "
        "latest always only "
        "all some any every advantages disadvantages pros cons can must should may"
    )
) | frozenset(
    _listed(
        "增加 减少 上涨 下跌 上升 下降 买 卖 买入 卖出 进口 出口 打开 关闭 开 关 开始 结束 启用 停用 "
        "允许 禁止 接受 拒绝 "
        "添加 删除 安装 卸载 之前 之后 前 后 上 下 左 右 东 西 南 北 好 坏 便宜 贵 快 慢 热 冷 高 低 "
        "最大 最小 最多 最少 多 少 "
        "大 小 长 短 早 晚 新 旧 安全 危险 合法 非法 成功 失败 喜欢 讨厌 难 容易 满 空 加密 解密 上传 "
        "下载 借 还 存 取 "
        "到达 出发 白天 晚上 优点 缺点 盈利 亏损 赞成 反对 正 负 全部 部分 必须 应该 可以"
    )
)

# Where one of these stands, what comes first and what comes second differ.
ORDERED: Final = (
    NEGATIONS
    | frozenset(
        _listed(
            "from to than before after over under by against into onto versus vs between of if when "
            "because since until "
            "while then but although so that which who whose instead rather as"
        )
    )
    | frozenset("从到比被把给向对让由于若如先后再则而但因所之")
)

# Capitals tell these apart from ordinary words.
CASED: Final = frozenset(
    _listed(
        "us it who may polish turkey apple march china bill mark will rose amazon shell orange mercury "
        "mars nice reading "
        "python java go rust swift meta windows word access excel gap target visa august frank grace "
        "hope joy rich sue "
        "drew chase bush cook rice brown green black white king young long stone wood ford jordan chad georgia chile"
    )
)

SHORT: Final = frozenset(
    _listed(
        "i a is it my do to in on at of or an am as be by go he if me no so up us we hi ok vs "
        "ai tv uk eu un id pc os ip ui hr pr qa"
    )
)
"""Words of up to two letters that are no symbols of anything, whatever their case."""
HOURS: Final = frozenset(_listed("am pm"))

WH: Final = frozenset(_listed("what which who whom whose when where why how"))
AUXILIARIES: Final = frozenset(
    _listed("is are am was were do does did has have had can could will would should shall may might must")
)
ZH_QUESTION: Final = (
    "吗",
    "什么",
    "怎么",
    "如何",
    "为什么",
    "哪",
    "谁",
    "几",
    "多少",
    "是否",
    "是不是",
    "有没有",
    "能不能",
)

# Pairs of ways to write one thing; the left one is written as the right one.
CONTRACTIONS: Final = {
    "what's": "what is", "who's": "who is", "where's": "where is", "how's": "how is", "it's": "it is",
    "that's": "that is", "there's": "there is", "i'm": "i am", "i've": "i have", "you're": "you are",
    "we're": "we are", "they're": "they are", "can't": "can not", "cannot": "can not", "won't": "will not",
    "don't": "do not", "doesn't": "does not", "didn't": "did not", "isn't": "is not", "aren't": "are not",
    "wasn't": "was not", "weren't": "were not", "shouldn't": "should not", "wouldn't": "would not",
    "couldn't": "could not", "hasn't": "has not", "haven't": "have not", "hadn't": "had not", "mustn't": "must not",
}  # fmt: skip
SPELLINGS: Final = {
    "e-mail": "email", "colour": "color", "favourite": "favorite", "cancelled": "canceled", "cancelling": "canceling",
    "organisation": "organization", "licence": "license", "centre": "center", "summarise": "summarize",
    "analyse": "analyze", "catalogue": "catalog", "programme": "program", "purchase": "buy", "film": "movie",
    "percent": "%", "telephone": "phone", "laptop's": "laptop",
}  # fmt: skip

NUMBERS: Final = {
    word: number
    for number, word in enumerate(
        _listed(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen"
        )
    )
} | {
    word: 10 * number
    for number, word in enumerate(_listed("twenty thirty forty fifty sixty seventy eighty ninety"), start=2)
}
ZH_DIGITS: Final = {char: number for number, char in enumerate("〇一二三四五六七八九")} | {"两": 2, "零": 0}
ZH_UNITS: Final = {"十": 10, "百": 100, "千": 1_000}
ZH_COUNTED: Final = "个年月日天周时分秒元块岁人次件号条张台部本页米斤吨层楼倍名位份种项家间辆只"

# What may be said before a question, or after it, without being part of it. Greetings and thanks only where a mark
# parts them from the question: "how do I say thank you", 你好厉害.
ZH_BEFORE: Final = tuple(
    _listed(
        "麻烦问一下 麻烦问下 请问一下 请问 我想知道 我想问一下 我想问 想问一下 想问 "
        "请你告诉我 请告诉我 能告诉我 可以告诉我 "
        "告诉我 请你 请"
    )
)
ZH_GREETINGS: Final = ("你好", "早上好", "下午好", "晚上好")
ZH_AFTER: Final = ("呢", "啊", "呀", "哦")
ZH_THANKS: Final = ("谢谢你", "谢谢", "多谢")
# Characters that make another word of a phrase before them, and those that do of a particle after them.
ZH_NOT_BEFORE: Final = frozenset("们题假客教求愿柬示安辞罪缨战降功命帖")
ZH_NOT_AFTER: Final = frozenset("毛花粗咿")
EN_BEFORE: Final = ("please", "kindly")
EN_GREETINGS: Final = (
    "hi", "hello", "hey", "hi there", "hello there", "excuse me", "quick question", "good morning", "good evening",
)  # fmt: skip
EN_AFTER: Final = ("please", "thanks", "thank you", "thanks a lot", "thank you very much", "many thanks")
# Before a question word only.
EN_ASKING: Final = (
    "can you tell me", "could you tell me", "would you tell me", "can you please tell me", "could you please tell me",
    "please tell me", "tell me", "let me know", "do you know", "i want to know", "i would like to know",
    "i'd like to know", "i wonder", "may i ask", "can i ask",
)  # fmt: skip
EN_HOW: Final = ("how do i", "how can i", "how do you", "how do we", "how can we", "how can you", "how could i")
