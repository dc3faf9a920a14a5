"""All workloads by name, in the order of the papers."""

from benchmarks.figures import conv_mnist, graphs, linear, lstm, ragged, trees, vgg

WORKS = {
    "projection": linear.PROJECTION,
    "conv_mnist": conv_mnist.FORWARD,
    "lstm": lstm.FORWARD,
    "tree_15": trees.SMALL,
    "tree_100": trees.LARGE,
    "graph_20": graphs.SMALL,
    "graph_100": graphs.LARGE,
    "conv_mnist_gradients": conv_mnist.GRADIENTS,
    "lstm_gradients": lstm.GRADIENTS,
    "vgg_48": vgg.SMALL,
    "vgg_224": vgg.LARGE,
    "lstm_unrolled": lstm.UNROLLED,
    "lstm_loop": lstm.LOOPED,
    "map_function": linear.NUMBERS_WORK,
    "rows": ragged.ROWS,
}
