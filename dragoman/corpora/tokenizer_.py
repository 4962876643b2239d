"""Text to token ids and back, without loss.

Use:
    source, target = train_pair(english, italian, TokenizerConfig())
    ids = target.encode("l'amico (vero), no?")
    target.decode(ids)                                   # "l'amico (vero), no?"
    Tokenizer.from_json(target.to_json())                # the same tokenizer, in another process or year

A tokenizer is one tokenizer.json of Hugging Face's `tokenizers`: normaliser, vocabulary and decoder all live in that
text, and the first four ids are [PAD] [UNK] [SOS] [EOS]. None of them can be written in a sentence: a literal "[EOS]"
stays the text that it is. After them come the tags of a model of several directions, if it is one, such as >>it<<. At
the beginning of a text, and there alone, a tag is what it says, see `languages`; it is no part of what is decoded.

kind "word": words, and marks of punctuation that know which neighbour they touch, so that `decode(encode(text))` is
`text` for every text of known words, its spacing included. An unknown word becomes [UNK].
kind "bpe", "unigram": pieces of words over bytes; nothing is unknown, and every text comes back as it was.

Limits: `encode` changes nothing in a text; `corpus.clean` is the place for that. A lone surrogate is no text, hence a
TypeError. Training bpe or unigram twice on the same text can give different ids, so a tokenizer is trained once and
saved, never trained again on resume.
"""

from __future__ import annotations
