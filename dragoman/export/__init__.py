"""Export of a trained model to other engines, and CTranslate2 as a search engine for our own translator."""
