"""The words that the features count, by what they say about a request.

Training writes this table into the artefact; serving reads it from there. Keys are English words, pairs of words, or
one to four Chinese characters, in lower case; a word may stand in one category only.
"""

from collections.abc import Mapping
from typing import Final

_CATEGORIES: Final[Mapping[str, str]] = {
    "cause": "because|therefore|thus|hence|cause|causes|caused|effect|effects|reason|reasons|why|result|results|"
    "leads|led to|due to|consequence|impact|因为|所以|由于|因此|导致|原因|为什么|为何|影响|结果|使得|从而|造成|后果",
    "contrast": "although|though|however|but|whereas|despite|unless|nevertheless|instead|rather than|even if|虽然|"
    "但是|尽管|然而|除非|却|不过|反而|而不",
    "condition": "if|suppose|assume|assuming|assumption|given|whenever|provided|in case|如果|假设|假如|已知|若|那么|"
    "倘若|设|只要|条件",
    "quantity": "how many|how much|total|each|per|half|twice|times|percent|percentage|average|remaining|altogether|"
    "sum|difference|product|ratio|left|rest|cost|costs|price|多少|一共|平均|每|倍|总共|剩下|还剩|共有|几个|还有|"
    "总数|百分|之几|元|千克|米",
    "compare": "more|less|than|most|least|larger|older|younger|earlier|later|higher|lower|same|both|either|neither|"
    "between|first|last|similar|different|faster|slower|compare|compared|比|更|最|相同|都|哪个|哪一|相比|区别|对比|"
    "比较|共同",
    "solve": "prove|show that|derive|calculate|compute|find|determine|solve|evaluate|simplify|estimate|verify|证明|"
    "计算|求|解|推导|求解|推断|推理|列式|解答|算",
    "logic": "all|some|none|every|exactly|only|at least|at most|must|cannot|could be|not|following|except|argument|"
    "conclusion|infer|inferred|premise|statement|statements|implies|follows|contradiction|必须|不能|至少|至多|只有|"
    "所有|下列|以下|说法|结论|推出|前提|真话|假话|不正确|错误的|正确的|属于|分别",
    "relative": "whose|whom|which|who|that|in which|of which|where",
    "ask": "what|when|how|is|are|was|did|does|do|can|什么|怎么|如何|怎样|谁|哪里|何时|吗|呢|哪些|是否|多久",
    "summarise": "summarize|summarise|summary|headline|tldr|dr|recap|boils|outline|abstract|sum up|key points|总结|"
    "概括|摘要|大意|提炼|归纳|标题",
    "translate": "translate|translation|翻译|译成|译为|英文|英语",
    "classify": "classify|category|categories|sentiment|positive|negative|topic|review|reviews|rating|label|labels|"
    "spam|star|stars|opinion|section|分类|情感|类别|积极|消极|评论|评价|属于哪|哪类",
    "rewrite": "rewrite|paraphrase|rephrase|correct|grammar|edit|convert|replace|改写|润色|修改|替换|转换|改成|仿写|"
    "纠正|重写",
    "extract": "extract|list|identify|name|mentioned|according to|提取|抽取|列出|找出|识别|实体|关键词|列举",
    "write": "write|generate|create|compose|suggest|poem|story|email|essay|letter|tweet|blog|song|slogan|brainstorm|"
    "ideas|写|生成|创作|编写|故事|诗|作文|文章标题|邮件|文案|广告|推荐|建议|一篇|一首|设计一",
    "explain": "define|explain|describe|definition|mean|means|meaning|tell me|give|example|examples|introduce|解释|"
    "介绍|描述|说明|是指|定义|意思|举例|给出|讲述|简述|告诉我",
    "passage": "article|passage|paragraph|context|document|text|following text|dialogue|conversation|sentence|"
    "sentences|background|situation|文章|段落|材料|下文|给定|文本|句子|对话|上文|阅读",
    "code": "code|function|python|java|javascript|sql|class|api|script|bug|error|implement|algorithm|array|html|css|"
    "c++|program|method|string|database|query|代码|函数|程序|编程|算法|数组|字符串|脚本|数据库|编写一个",
    "technical": "system|model|data|server|network|docker|app|application|config|deploy|design|optimize|optimise|"
    "architecture|framework|training|machine|file|user|component|project|analysis|strategy|detailed|step|steps|"
    "implementation|performance|requirements|系统|模型|数据|服务器|网络|架构|部署|优化|性能|方案|步骤|分析|策略|"
    "框架|详细",
    "analyse": "analyze|analyse|evaluate the|discuss|critique|assess|pros and|advantages|disadvantages|trade|"
    "implications|compare and|relationship|利弊|优缺点|优点|缺点|评估|讨论|论述|关系|综合|探讨|评述",
    "relation": "director|directed|author|born|founded|founder|wife|husband|son|daughter|father|mother|brother|"
    "starred|starring|film|movie|band|album|series|novel|actor|actress|singer|team|club|university|nationality|"
    "located|导演|作者|出生|创始人|妻子|丈夫|儿子|女儿|电影|乐队|小说|演员|歌手|球队|大学|国籍|位于|主演|冠军",
    "chat": "i|my|me|you|your|we|our|please|help|i'm|i'd|我|你|请|帮我|我们|您|帮忙",
    "number": "one|two|three|four|five|six|seven|eight|nine|ten|hundred|thousand|million|dozen|third|quarter|一|二|"
    "三|四|五|六|七|八|九|十|百|千|万|两|甲|乙|丙",
    "mathematics": "equation|function of|integer|integers|triangle|circle|angle|polynomial|matrix|probability|prime|"
    "real number|real numbers|square|radius|degree|degrees|velocity|mass|volume|area|length|equal|方程|整数|三角形|"
    "圆|角|概率|质数|直线|速度|质量|体积|面积|长方形|周长|数列|向量|抛物线|集合|同时",
    "sequence": "then|next|after|before|finally|while|until|during|again|and then|step by|然后|接着|之后|以后|最后|"
    "再|又|先|经过|后来|现在|原来|上午|下午|第一天|第二天",
    "pronoun": "he|she|they|it|his|her|their|its|him|them|他|她|它|他们",
    "law": "court|law|legal|contract|crime|defendant|plaintiff|法院|法律|合同|犯罪|被告|原告|甲公司|刑法|民法|规定|"
    "起诉|判决|行为",
    "choice": "true|false|correct answer|best answer|choose|option|options|answer|question|选择|选项|答案|正确|错误|"
    "问题|下面哪|哪一项|哪项",
}

CATEGORIES: Final[tuple[str, ...]] = tuple(_CATEGORIES)
"""Names of the categories, in the order of their counts."""


def word_categories() -> dict[str, int]:
    """The category of each word; ValueError where a word stands in two."""
    found: dict[str, int] = {}
    for index, words in enumerate(_CATEGORIES.values()):
        for word in words.split("|"):
            if found.setdefault(word, index) != index:
                raise ValueError(f"the word {word!r} stands in two categories")
    return found
