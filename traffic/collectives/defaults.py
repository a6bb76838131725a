"""What algorithms do unless they are asked otherwise."""

# Chunks of a pipeline: of T = (depth + chunks) (alpha + S / (chunks B)) the second term is then within an eighth of S/B for
# each step of depth, and a chunk is large enough still for messages of some hundred kilobytes.
PIPELINE_CHUNKS = 8
