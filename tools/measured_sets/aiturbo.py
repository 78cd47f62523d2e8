"""Tables printed in AITurbo's follow-on paper."""

import numpy as np

#: (workers, parameter servers, GPUs) of AITurbo's follow-on's calibration runs, 5 cores per pod
POINTS = np.array(
    [(1, 1, 1), (1, 1, 2), (2, 1, 2), (3, 1, 3), (1, 2, 1), (1, 2, 2), (2, 2, 2)], dtype=np.float64
)

#: global batch, then seconds per step at `POINTS`; of its 14 models Inception-3 is left out, whose published
#: coefficients give negative times at its own calibration points
CALIBRATION = {
    "vgg11": (128, (2.023, 1.991, 1.012, 0.967, 1.808, 1.775, 0.904)),
    "vgg16": (64, (2.071, 2.020, 1.493, 0.996, 1.936, 1.885, 0.877)),
    "vgg19": (32, (2.142, 2.134, 1.053, 1.014, 1.727, 1.719, 0.904)),
    "lenet": (1024, (0.042, 0.041, 0.024, 0.017, 0.038, 0.037, 0.017)),
    "googlenet": (32, (0.338, 0.342, 0.169, 0.034, 0.334, 0.338, 0.169)),
    "overfeat": (512, (1.946, 2.339, 1.533, 1.020, 1.458, 1.851, 0.952)),
    "alexnet": (1024, (0.761, 0.953, 0.427, 0.422, 0.790, 0.982, 0.881)),
    "trivial": (1024, (0.080, 0.080, 0.039, 0.034, 0.049, 0.049, 0.040)),
    "inception4": (32, (0.485, 0.462, 0.274, 0.263, 0.457, 0.434, 0.212)),
    "resnet50": (64, (0.302, 0.325, 0.163, 0.157, 0.245, 0.267, 0.125)),
    "resnet101": (64, (0.532, 0.569, 0.286, 0.277, 0.427, 0.463, 0.227)),
    "resnet152": (32, (0.403, 0.437, 0.248, 0.376, 0.377, 0.410, 0.204)),
    "mobilenet": (1024, (0.151, 0.157, 0.088, 0.056, 0.150, 0.156, 0.078)),
}

#: seconds to restart a GPU job on 1, 2 and 3 GPUs (build the model, load the checkpoint, warm up)
RESTARTS = {
    "vgg11": (25, 42, 58),
    "vgg16": (27, 43, 60),
    "vgg19": (30, 46, 61),
    "lenet": (6, 11, 17),
    "googlenet": (11, 19, 21),
    "overfeat": (20, 44, 53),
    "alexnet": (11, 22, 27),
    "trivial": (4, 7, 9),
    "inception4": (39, 43, 46),
    "resnet50": (21, 29, 36),
    "resnet101": (35, 42, 54),
    "resnet152": (41, 54, 63),
    "mobilenet": (10, 21, 24),
}

#: the same of models that have no profile
MORE_RESTARTS = {"inception3": (22, 38, 43), "nasnet": (61, 79, 94)}

#: millions of parameters: counted from tf_cnn_benchmarks' definitions, the residual and Inception networks,
#: MobileNet v2 and NASNet mobile from the literature
PARAMETERS = {
    "vgg11": 132.9,
    "vgg16": 138.4,
    "vgg19": 143.7,
    "lenet": 2.2,
    "googlenet": 7.0,
    "overfeat": 145.9,
    "alexnet": 61.8,
    "trivial": 4.3,
    "inception3": 27.2,
    "inception4": 42.7,
    "resnet50": 25.6,
    "resnet101": 44.5,
    "resnet152": 60.2,
    "nasnet": 5.3,
    "mobilenet": 3.5,
}
