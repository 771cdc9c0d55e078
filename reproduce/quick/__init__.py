"""Small versions of the papers' tables: the digits in place of data sets, and little of everything.

They show that the code of a table runs and in which direction its figures go. Their figures are not the paper's.
Each module has `TABLES`: by the name of a table, what makes its rows from a seed. A second argument is the file of
results, beside which pictures are put.
"""
