/* SPDX-License-Identifier: BSD-3-Clause */
/* The nets of `weft train`: net.h draws them. A new one is a function and a line here. */
#include "tools/train/net.h"

static size_t mlp_operations(const struct net_config *config)
{
    return 2 * config->hidden_count + 1;
}

static void build_mlp(struct net *net, const struct net_config *config)
{
    size_t at = 0;

    for (size_t i = 0; i < config->hidden_count; i++)
        at = net_relu(net, net_dense(net, at, config->hidden[i]));
    net_dense(net, at, config->classes);
}

static size_t cnn_operations(const struct net_config *config)
{
    (void)config;
    return 9;
}

static void build_cnn(struct net *net, const struct net_config *config)
{
    size_t at = net_relu(net, net_convolution(net, 0, config->channels, 3, 1, 1));

    at = net_relu(net, net_convolution(net, at, 2 * config->channels, 3, 1, 1));
    at = net_pool(net, at);
    at = net_relu(net, net_convolution(net, at, 4 * config->channels, 3, 1, 1));
    net_dense(net, net_pool(net, at), config->classes);
}

enum { BLOCKS = 3 };

static size_t resnet_operations(const struct net_config *config)
{
    (void)config;
    return 3 + BLOCKS * 9 + 2;
}

/* He et al., CVPR 2016, Fig. 2 and 5 (left), normalised by groups. */
static size_t build_block(struct net *net, size_t from, size_t channels, size_t stride)
{
    size_t at = net_relu(net, net_norm(net, net_convolution(net, from, channels, 3, stride, 0)));
    int same = stride == 1 && net->values[from].channels == channels;

    at = net_norm(net, net_convolution(net, at, channels, 3, 1, 0));
    if (!same)
        from = net_norm(net, net_convolution(net, from, channels, 1, stride, 0));
    return net_relu(net, net_add(net, at, from));
}

static void build_resnet(struct net *net, const struct net_config *config)
{
    net_part(net, "stem.", 0);
    size_t at = net_relu(net, net_norm(net, net_convolution(net, 0, config->channels, 3, 1, 0)));

    for (size_t block = 0; block < BLOCKS; block++) {
        net_part(net, "block", block + 1);
        at = build_block(net, at, config->channels << block, block == 1 ? 2 : 1);
    }
    net_part(net, "head.", 0);
    net_dense(net, net_mean(net, at), config->classes);
}

static const struct net_architecture mlp = {
    .name = "mlp",
    .summary = "a multi-layer perceptron of --hidden layers",
    .has_hidden = 1,
    .operations = mlp_operations,
    .build = build_mlp,
};

static const struct net_architecture cnn = {
    .name = "cnn",
    .summary = "three convolutions of --channels and more, two poolings, a dense layer",
    .operations = cnn_operations,
    .build = build_cnn,
};

static const struct net_architecture resnet = {
    .name = "resnet",
    .summary = "three residual blocks of two convolutions each, normalised by groups: 29 tensors",
    .operations = resnet_operations,
    .build = build_resnet,
};

static const struct net_architecture *const architectures[] = {&mlp, &cnn, &resnet, NULL};

const struct net_architecture *const *net_architectures(void)
{
    return architectures;
}
