"""Engines: folders that TensorRT-LLM loads with nothing downloaded, made from a variant and kept in a store."""
