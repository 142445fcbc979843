"""heed under the names, argument orders and defaults of other libraries.

Each follows its original to the letter. What heed cannot do raises heed.UnsupportedError; no argument is ignored.
"""
