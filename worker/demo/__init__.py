"""The sample memory of `remq demo`: one agent, five days, in English and in Chinese.

`log.en.jsonl` and `log.zh.jsonl` hold one event a line: the fields of an event without its agent,
and instead of `ts` the pair `day` (1 to 5, 5 the latest) and `time` (HH:MM of that day).
"""
