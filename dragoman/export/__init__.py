"""Export of a trained model to other engines, and CTranslate2 as a search engine for our own translator.

export.py            the command `dragoman export`: make an export folder, verified and with a model card
verification.py      translate a sample and compare the engine's translations with ours, token by token
card.py, templates/  the model card: data, scores, code to load the export, limitations
folder.py            a folder that appears complete or not at all
formats.py           what each format supports, and which module writes and loads it
to_*.py              one module for each format
sentencepiece_model.py, tokenizer_files.py, weights.py, loaded.py   what the formats share
ctranslate2_engine.py   `translate --engine ctranslate2`
"""
