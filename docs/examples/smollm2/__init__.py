"""SmolLM2-135M, a real language model, in one explicit CUDA graph for each token; README.md walks through it.

Modules build on those before them: ``gguf_file`` (the file format), ``weights`` (hyperparameters and tensors),
``tokenizer`` (text and tokens), ``model`` (the graphs), ``generate`` (the execs and the loop over tokens), ``drawing``,
``cli``; ``bench`` measures.
"""
