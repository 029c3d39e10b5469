"""Datasets of other libraries, as flows: each library in a file of its name.

They are looked at as they are given, and no library is imported for it: whoever has a dataset has
imported its library. What they share stands beside them:

``foreign``   what a given object is         ``numbered``  a dataset with numbered items
``arrays``    other libraries' values        ``streams``   a dataset that is read in order
"""
