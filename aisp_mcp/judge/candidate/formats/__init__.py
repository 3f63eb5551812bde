"""The halves of the adapters that run: in the recorder, the verifier and the workers. One module per format of
suites/adapters/, which finds the problems and writes the pairs that name these modules.
"""
