"""Pairs of questions that are near and differ, and pairs that ask the same, in English and Chinese. Made by hand.

A near pair is a frame with one thing in it exchanged: a number, a negation, a word of direction, a name, or who does it
to whom. An embedding puts most of them closer together than it puts paraphrases.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Final


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions. `kind` is what differs, empty where nothing does; `language` is en or zh."""

    kind: str
    language: str
    first: str
    second: str


_NUMBERS: Final = {
    "en": (
        ["30", "60", "thirty one", "three", "300", "13", "twenty"],
        [
            "Can I return a laptop within {} days?",
            "What is {} percent of the total price?",
            "How many calories are in {} grams of rice?",
            "Is the warranty valid for {} months?",
            "Summarise the results of {} patients.",
            "What happens if I miss {} payments in a row?",
            "Convert {} euros to dollars",
            "Which laws changed in section {} of the act?",
        ],
    ),
    "zh": (
        ["30", "60", "三十一", "3", "300", "十三", "二十"],
        [
            "{}天内可以退货吗",
            "总价的{}%是多少",
            "{}克米饭有多少热量",
            "保修期是{}个月吗",
            "请总结{}名患者的结果",
            "连续{}次未付款会怎么样",
            "把{}欧元换成美元",
            "合同第{}条改了什么",
        ],
    ),
}
_NEGATIONS: Final = {
    "en": [
        ("Which foods are safe during pregnancy?", "Which foods are not safe during pregnancy?"),
        ("Can I take this drug with alcohol?", "Can't I take this drug with alcohol?"),
        ("Does the policy cover water damage?", "Doesn't the policy cover water damage?"),
        ("What should I do before surgery?", "What should I not do before surgery?"),
        ("Is this product suitable for children?", "Is this product never suitable for children?"),
        ("List the countries that require a visa", "List the countries that don't require a visa"),
        ("Why did the payment succeed?", "Why did the payment not succeed?"),
        ("Coffee with sugar", "Coffee without sugar"),
        ("Show accounts with activity this year", "Show accounts with no activity this year"),
        ("The room was clean and quiet", "The room wasn't clean and quiet"),
        ("I would recommend this hotel", "I wouldn't recommend this hotel"),
        ("Is it possible to cancel for free?", "Is it possible to cancel except for free?"),
        ("They have paid the invoice", "They haven't paid the invoice"),
        ("Everyone passed the audit", "Nobody passed the audit"),
        ("The update fixed the problem", "The update hardly fixed the problem"),
        ("Users can log in after the update", "Users cannot log in after the update"),
    ],
    "zh": [
        ("孕期可以吃哪些食物", "孕期不可以吃哪些食物"),
        ("这种药能和酒一起吃吗", "这种药不能和酒一起吃吗"),
        ("保险赔水损吗", "保险不赔水损吗"),
        ("手术前应该做什么", "手术前不应该做什么"),
        ("这个产品适合儿童吗", "这个产品不适合儿童吗"),
        ("列出需要签证的国家", "列出不需要签证的国家"),
        ("为什么付款成功了", "为什么付款没成功"),
        ("加糖的咖啡", "无糖的咖啡"),
        ("房间干净安静", "房间不干净也不安静"),
        ("我会推荐这家酒店", "我不会推荐这家酒店"),
        ("他们已经付款了", "他们还没有付款"),
        ("更新以后能登录", "更新以后不能登录"),
        ("质量很好", "质量并不好"),
        ("有库存吗", "没有库存吗"),
        ("请列出已审核的订单", "请列出未审核的订单"),
        ("客服回复了我", "客服没回复我"),
    ],
}
_POLARITY: Final = {
    "en": (
        [
            ("increase", "decrease"), ("enable", "disable"), ("buy", "sell"), ("accept", "reject"),
            ("upload", "download"), ("encrypt", "decrypt"), ("open", "close"), ("start", "stop"),
            ("install", "uninstall"), ("import", "export"),
        ],
        [
            "How do I {} it?",
            "When is the best time to {} shares?",
            "What does it cost to {} an account?",
            "Please tell me how to {} the file",
            "Which permission do I need to {} data?",
            "Why did they {} the offer?",
        ],
    ),
    "zh": (
        [
            ("增加", "减少"), ("启用", "停用"), ("买入", "卖出"), ("接受", "拒绝"), ("上传", "下载"), ("加密", "解密"),
            ("打开", "关闭"), ("开始", "结束"), ("安装", "卸载"), ("进口", "出口"),
        ],
        [
            "怎么{}它",
            "什么时候{}股票最好",
            "{}账户要多少钱",
            "请告诉我如何{}文件",
            "{}数据需要什么权限",
            "他们为什么{}报价",
        ],
    ),
}  # fmt: skip
_ENTITIES: Final = {
    "en": (
        ["Paris", "Berlin", "Austria", "Australia", "iPhone 15", "iPhone 16", "Acme Ltd", "laptops", "phones"],
        [
            "What is the refund policy for {}?",
            "Tell me about {}",
            "How far is the store from {}?",
            "Who is responsible for {}?",
            "Summarise the news about {} today",
        ],
    ),
    "zh": (
        ["北京", "南京", "奥地利", "澳大利亚", "小米15", "小米16", "华为", "笔记本电脑", "手机"],
        [
            "{}的退款政策是什么",
            "介绍一下{}",
            "{}离商店有多远",
            "谁负责{}",
            "总结今天关于{}的新闻",
        ],
    ),
}
_ORDERS: Final = {
    "en": (
        [("Alice", "Bob"), ("dollars", "euros"), ("France", "Spain"), ("London", "Leeds"), ("cats", "dogs")],
        [
            "Did {} beat {}?",
            "Convert {} to {}",
            "Is {} larger than {}?",
            "How do I get from {} to {}?",
            "Why do {} chase {}?",
            "When {} arrived, {} left",
            "If {} pays, {} delivers",
        ],
    ),
    "zh": (
        [("小明", "小红"), ("美元", "欧元"), ("法国", "西班牙"), ("上海", "杭州"), ("猫", "狗")],
        [
            "{}打败了{}吗",
            "把{}换成{}",
            "{}比{}大吗",
            "从{}到{}怎么走",
            "{}为什么追{}",
            "如果{}付款，{}就发货",
            "{}向{}出口多少",
        ],
    ),
}
_TRAPS: Final = {
    "en": [
        ("Is the service good?", "The service is good."),
        ("Please tell us about the policy", "Please tell US about the policy"),
        ("How should I take it?", "How could I take it?"),
        ("Who is a president?", "Who is the president?"),
        ("Who was the president?", "Who is the president?"),
        ("Which C compiler is best?", "Which C++ compiler is best?"),
        ("What changed in Python 3.1?", "What changed in Python 3.10?"),
        ("What is x2?", "What is x²?"),
        ("Did he re-sign?", "Did he resign?"),
        ("few people came", "a few people came"),
        ("I like my account", "I like his account"),
        ("Will it rain?", "Did it rain?"),
        ("if x:\n    a()\n    b()", "if x:\n    a()\nb()"),
        ("What is 3,5 plus 1?", "What is 35 plus 1?"),
        ("thank you for nothing", "for nothing"),
        ("great \U0001f600", "great \U0001f620"),
        ("How do I say thank you?", "How do I say?"),
        ("Hello world program", "world program"),
        ("What does please mean?", "What does mean?"),
        ("What is 1,5?", "What is 15?"),
    ],
    "zh": [
        ("中国的银行有哪些", "中国银行有哪些"),
        ("三星手机多少钱", "3星手机多少钱"),
        ("我的目的", "我的目"),
        ("他是老师吗", "他是老师"),
        ("一下子就好了", "就好了"),
        ("请假怎么办", "假怎么办"),
        ("他请客了", "他客了"),
        ("谢谢是谁", "是谁"),
        ("两次还是三次", "两次还是四次"),
        ("买的多还是卖的多", "卖的多还是买的多"),
        ("十二", "二十"),
        ("小米降价了", "大米降价了"),
        ("上周的报表", "下周的报表"),
        ("今年涨了多少", "去年涨了多少"),
        ("他欠我钱", "我欠他钱"),
        ("必须申请吗", "可以申请吗"),
        ("怎么说谢谢", "怎么说"),
        ("你好厉害", "厉害"),
        ("想问题", "题"),
        ("告诉我们结果", "们结果"),
    ],
}

SAME: Final = [
    Pair("", "en", "What's the refund policy for laptops?", "what is the refund policy for laptops"),
    Pair("", "en", "Please tell me what the delivery time is.", "Could you tell me what the delivery time is?"),
    Pair("", "en", "How do I reset my password?", "Hi, how can I reset my password, please?"),
    Pair("", "en", "For laptops, what is the refund policy?", "What is the refund policy, for laptops?"),
    Pair("", "en", "Can I return it within 30 days?", "Can I return it within thirty days?"),
    Pair("", "en", "Where's my parcel?", "Hello! Where is my parcel? Thanks"),
    Pair("", "en", "What colour is the cover?", "what color is the cover"),
    Pair("", "en", "How many users are there in 1,200 teams?", "How many users are there in 1200 teams?"),
    Pair("", "en", "I'd like to know when the shop opens", "When the shop opens?"),
    Pair("", "en", "Don't I need a visa for France?", "Do not I need a visa for France?"),
    Pair("", "zh", "请问笔记本电脑的退款政策是什么？", "笔记本电脑的退款政策是什么"),
    Pair("", "zh", "你好，我想知道怎么重置密码", "怎么重置密码？谢谢"),
    Pair("", "zh", "二十五天后可以退货吗", "25天后可以退货吗？"),
    Pair("", "zh", "麻烦问一下快递什么时候到呢", "快递什么时候到"),
    Pair("", "zh", "您的营业时间是几点", "你的营业时间是几点？"),
    Pair("", "zh", "iPhone 15多少钱", "请问ｉＰｈｏｎｅ １５多少钱呀"),
    # What people also write, and no rule here takes for the same: the price of certainty.
    Pair("", "en", "How do I get my money back for a laptop?", "What is the refund policy for laptops?"),
    Pair("", "en", "How long does delivery take?", "What is the delivery time?"),
    Pair("", "en", "I forgot my password, what now?", "How do I reset my password?"),
    Pair("", "en", "Which cities have a store?", "In which cities are your stores?"),
    Pair("", "zh", "笔记本能退钱吗", "笔记本电脑可以退款吗"),
    Pair("", "zh", "快递多久能到", "快递什么时候到"),
    Pair("", "zh", "忘记密码怎么办", "怎么重置密码"),
    Pair("", "zh", "哪些城市有门店", "你们在哪些城市开了门店"),
]


def near_pairs() -> list[Pair]:
    """All pairs that differ; no two are the same pair."""
    return list(dict.fromkeys(_near_pairs()))


def _near_pairs() -> Iterator[Pair]:
    for language in ("en", "zh"):
        for kind, table in (("number", _NUMBERS), ("entity", _ENTITIES)):
            fillings, frames = table[language]
            for frame in frames:
                for first, second in permutations(fillings, 2):
                    if first < second:
                        yield Pair(kind, language, frame.format(first), frame.format(second))
        pairs, frames = _POLARITY[language]
        for frame in frames:
            for first, second in pairs:
                yield Pair("polarity", language, frame.format(first), frame.format(second))
        pairs, frames = _ORDERS[language]
        for frame in frames:
            for first, second in pairs:
                yield Pair("order", language, frame.format(first, second), frame.format(second, first))
        for kind, both in (("negation", _NEGATIONS), ("trap", _TRAPS)):
            for first, second in both[language]:
                yield Pair(kind, language, first, second)
    # Negated frames: every frame of the tables with a word that turns it round.
    for table in (_NUMBERS, _ENTITIES):
        for language, (fillings, frames) in table.items():
            for frame in frames:
                for filling in fillings:
                    text = frame.format(filling)
                    negated = f"{text.rstrip('?')} or not?" if language == "en" else f"{text}不"
                    yield Pair("negation", language, text, negated)
