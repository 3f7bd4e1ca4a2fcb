// The functions that build the models of model/zoo.h; each has the name of its model. All take the image shape and the
// number of classes, and throw Error(usage) for images that are too small.
#pragma once

#include "model/graph.h"

namespace ddp::zoo {

// small.cpp: networks for images of 28x28.
Graph lenet(const Shape& image, std::int64_t classes);
Graph mnist_slim(const Shape& image, std::int64_t classes);
Graph mnist_towers(const Shape& image, std::int64_t classes);

// resnets.cpp
Graph resnet18(const Shape& image, std::int64_t classes);
Graph resnet34(const Shape& image, std::int64_t classes);
Graph resnet50(const Shape& image, std::int64_t classes);
Graph wide_resnet50_2(const Shape& image, std::int64_t classes);
Graph resnet18_d2l(const Shape& image, std::int64_t classes);
Graph resnet9(const Shape& image, std::int64_t classes);

// mobilenet.cpp
Graph mobilenet_v2(const Shape& image, std::int64_t classes);

// mobilenet_v3.cpp
Graph mobilenet_v3_large(const Shape& image, std::int64_t classes);
Graph mobilenet_v3_small(const Shape& image, std::int64_t classes);

// convnext.cpp
Graph convnext_tiny(const Shape& image, std::int64_t classes);

// efficientnet.cpp
Graph efficientnet_b0(const Shape& image, std::int64_t classes);

// torchvision.cpp
Graph alexnet(const Shape& image, std::int64_t classes);
Graph vgg11(const Shape& image, std::int64_t classes);
Graph vgg11_bn(const Shape& image, std::int64_t classes);
Graph vgg16(const Shape& image, std::int64_t classes);
Graph vgg16_bn(const Shape& image, std::int64_t classes);
Graph squeezenet1_1(const Shape& image, std::int64_t classes);
Graph densenet121(const Shape& image, std::int64_t classes);
Graph shufflenet_v2(const Shape& image, std::int64_t classes);

// cifar10_tutorial.cpp
Graph cifar10_tutorial(const Shape& image, std::int64_t classes);

// airbench.cpp
Graph airbench94(const Shape& image, std::int64_t classes);
Graph airbench94_muon(const Shape& image, std::int64_t classes);

// caffe.cpp
Graph caffe_lenet(const Shape& image, std::int64_t classes);
Graph caffenet(const Shape& image, std::int64_t classes);

}  // namespace ddp::zoo
