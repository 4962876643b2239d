"""The marks and the scripts of written text, for all rules about it."""

FINAL_MARKS = ".?!…。！？؟۔।॥։"  # of sentences; the last ones: Arabic, Urdu, Hindi and Armenian
PAUSES = ",;:–—，、；："  # inside sentences
OPENING_MARKS = "\"'([{«“„‚‘’»¿¡"
CLOSING_MARKS = "\"'”’»)」』）"  # a final mark may stand before these
EMOJI = "\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"  # inside the brackets of a pattern
APOSTROPHES = "'’ʼ´`‘′＇"
# Marks that mean the same; the first one is what most text has.
VARIANTS = (APOSTROPHES, '"“”„‟″«»＂', "-‐‑–—−", ".。．", ",，、", "?？", "!！", ":：", ";；", "(（", ")）")
# Letters of scripts that put no space between words: Thai and Lao, Burmese, Khmer, Japanese, Chinese.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uff66-\uff9f"
