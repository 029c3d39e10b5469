"""Sources that read datasets of other libraries, each library in a separate module.

No library is imported to recognise its datasets: a user who has a dataset object has imported its
library already. Shared modules:

``foreign``   identifies an object's class   ``numbered``  datasets with numbered items
``arrays``    converts values to arrays      ``streams``   datasets that are read in order
"""
