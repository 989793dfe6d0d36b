"""Reading and writing files of other programs: programs, tensors, parameters, pickles."""
