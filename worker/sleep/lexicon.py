"""Words that say little, for the offline stand-in: English and Chinese.

Three grades: function words part phrases and are never terms; noise words (what every tool call
says) and common verbs are terms of little weight.
"""


def _words(block: str) -> frozenset[str]:
    return frozenset(block.split())


ENGLISH_FUNCTION = _words("""
    a about above after again against ago ahead all almost along already also although always am
    among an and and/or another any are aren't around as at away be became because become been
    before behind being below beside besides best better between both but by came can can't cannot
    could did didn't do does doesn't doing don't done down due during each early either else enough
    etc even ever every everybody everyone everything few fewer first five for four from further get
    gets getting go goes going gone got had half has have having he he's hence her here hers him
    himself his how however hundred i i'll i'm i've if in indeed inside into is isn't it it's its
    itself just keep keeps kept last late later least less let's like many may me might mine more
    most much must my myself near neither never next no nobody none nor not nothing now of off often
    on once one only onto or other others our ours ourselves out outside over own per perhaps put
    quite rather same seem seems several shall she she's should since so some somebody someone
    something soon still such ten than that that's the their theirs them themselves then there
    there's these they this those though thousand three through thus till to today together tomorrow
    too toward towards two under until up upon us use used uses using very via was wasn't we we'll
    we're we've well went were what when where whether which while who whole whom whose why will
    with within without won't would yes yesterday yet you you're your yours yourself zero
""")

#: What follows one of these is a thing rather than an act.
ENGLISH_DETERMINERS = _words("""
    a about after against an any before between by during each every for from her his in into its my
    no of on our over per some that the their these this those through under until with without your
""")

ENGLISH_TITLES = _words("dr mr mrs ms prof st vs")

UNITS = _words("kb mb gb tb kib mib gib ms min km kg hz khz mhz ghz px am pm")

ENGLISH_NOISE = _words("""
    agent answer answered april august bit call called case check checked checks command completed
    count counted day days december email entry error errors evening event exit exited failed
    february fetch fetched file files finished folder found friday green hour hours info item items
    january july june line lines list listed log logged logs look looked march memory message minute
    minutes monday month months morning night noon note notes notice november number october ok okay
    old oldest opened output passed people pull pulled pulling ran read reading reply reran result
    results run running runs saturday saw searched second seconds september skipped start started
    status step stop stopped success sunday task test tested testing tests thing things thursday
    time times tool tools tuesday user users way wednesday week weeks work worked works wrote year
    years
""")

#: Verbs and adjectives that any talk is made of.
ENGLISH_COMMON = _words("""
    able actually add added agree agreed agrees allow allowed allows amazing ask asked asks
    available awesome bad beautiful begin begins believe big bought bring buy certain change changed
    changes chat chatting come comes confirm confirmed confirms create created currently decide
    decided decides depend depends different difficult easy end ended ends enjoy enjoyed excited
    expect expected explain explained explains fantastic favorite feel feeling feels fixed follow
    followed follows forward forwarded free full fun gave give given gives glad good goodbye great
    handle happen happened happy hard hello help helped helpful hi high hold holds hope hoping
    important improve interested interesting kind know known knows learn learned leave leaves left
    let lets liked likes little live long looking lot lots love loved low made make makes maybe mean
    means meant meet mention mentioned merged mind move moved moves name named names need needed
    needs new nice offer open opens physical please pleasure possible prefer preferred prefers
    proceed provide raise raised really recent recently remain remains remember remind reminded
    request requested require required requires return returned returns right said say says see seen
    send sends sent set sets share short show showed shows sign signed signs small sorry sort sound
    sounds specific stay stays suggest suggested suggests sure take taken takes talk talked tell
    tells thank thanks think thinks thought told took tried tries true try turn turned understand
    update updated updates wait waited waiting waits want wanted wants welcome wonderful write
    writes wrong
""")

#: What persons do; a capital at the start of a sentence before one of these is a name.
ENGLISH_SPEAKING = _words("""
    agreed agrees asked asks confirmed confirms decided decides likes loves needs opened preferred
    prefers proposed proposes reminded said says suggested suggests tells thinks told wanted wants
    wrote
""")

#: Single characters that part phrases.
CHINESE_FUNCTION_CHARACTERS = frozenset(
    "的了着过在是有和与及或而且但若把被给让从到向对于为以之其此这那哪谁我你他她它们个些也都就才又再还很更最太不没"
    "未无非别请将会能可要应该得地吗呢吧啊呀嘛哦么什怎何几多少各每某因由所则即只仅已曾刚正等并却虽如当上下里外中前后"
    "内间来去起出进回说看做用点次条种件位名年月日时分秒天周号元块两一二三四五六七八九十百千万亿零半"
)

#: A word unknown to the dictionary that begins with one of these is a slip of the tagger.
CHINESE_SLIPS = frozenset(
    "没不要先全只已再前少补有会能可别才就都也很将被把让给从最每各此该我你他她它这那千一二三四五六七八九十两几"
)

CHINESE_FUNCTION = _words("""
    一个 一些 一下 一样 一直 一律 一般 一定 一起 一共 一边 上面 下面 不是 不能 不会 不要 不再 不过
    不用 不敢 不许 之后 之前 之间 之一 也许 事情 什么 他们 以及 以后 以前 以内 以上 以下 但是 你们
    使用 其中 其他 其它 其实 再次 再说 刚刚 前面 即使 另外 只有 只要 只是 可以 可能 可是 同时 后来
    后面 因为 因此 大家 大约 如何 如果 如此 它们 对于 尽管 就是 已经 并且 应该 当时 我们 所以 所有
    所在 接着 整个 无法 时候 时间 是否 曾经 有些 有的 期间 来说 比如 比较 没有 然后 特别 现在 由于
    的话 目前 直接 相关 看到 知道 继续 而且 自己 至少 至于 虽然 觉得 认为 记得 许多 说明 起来 跟着
    还是 还有 进行 这个 这些 这样 这里 这次 通过 那个 那些 那样 那里 部分 都是 里面 随着 需要 非常
    首先 全是 全部 千万 千万别 落到 包括 要求 喜欢 希望 表示 提到 建议 告诉 今天 明天 昨天 当天 每天
    哪怕 从头 列明 先说 为准 只能 有关 没什么 怎么 怎样 那么 这么 一点 有点 一次 几个 很多 不少 每个
    可能会 一种 之类 等等 例如 尤其 甚至 反而 不仅 不但 除了 关于 根据 按照 经过 作为 成为 变得 开始
    结束 想要 打算 准备 试试 看看 听说 发现 感觉 以为 谢谢 你好
""")

CHINESE_NOISE = _words("""
    测试 单元测试 用例 运行 执行 成功 失败 正常 告警 巡检 检查 查看 重试 超时 工单 日志 完成 处理
    工具 调用 命令 输出 结果 返回 文件 目录 入口 仓库 消息 记录 任务 用户 小时 分钟 代理 记忆 问题
    步骤 原因 耗时 提醒 同学 页面 链接 已建 修复 凌晨 上午 下午 晚上 周末 抓取 读取 搜索 打开 数据
    确实 有时候 困惑 找到 适应 掌握 推荐 提高 尝试 了解 分享 帮助 帮忙 高兴 客气 聊聊 聊天 听听 看来
    我会 主意 能够 话题 选择 期待 方法 真的 认识 好吃 好看 有用 有趣 开心 不错 漂亮 美丽 优美 值得
    保持 机会 时刻 要用 转给 提给 跟进 补全 生效 范围 接受 保留 东西 地方 方面 情况 内容 方式
""")

#: Words of time that the tagger takes for something else.
CHINESE_TIME = _words("""
    周一 周二 周三 周四 周五 周六 周日 周末 上周 下周 本周 这周 月底 年底 节假日 零点
""")

#: What the dictionary takes for places, and is none.
CHINESE_NO_PLACES = _words("城市 入口 日志 海滨 美丽 文明 长跑 店铺 公园")

#: Common family names, and how familiar names begin: only those can be persons.
CHINESE_SURNAMES = frozenset(
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许邓冯韩曹曾彭萧蔡潘田董袁于余叶蒋杜苏魏程吕丁沈任姚卢傅钟姜"
    "崔谭廖范汪陆金石戴贾韦夏邱方侯邹熊孟秦白江阎薛尹段雷黎史龙陶贺顾毛郝龚邵覃武钱严欧阿老小司诸葛上官常乔赖"
)
