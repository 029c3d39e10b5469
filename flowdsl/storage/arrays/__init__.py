"""Files of arrays: HDF5, NPZ and NPY."""
