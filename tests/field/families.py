"""The smallest model of every family: what gradients are tried with, on the small pictures of `Package.small`.

A family is a module of the package.
"""

NAMES = {
    "gluoncv2": """
        airnet50_1x64d_r16 airnext50_32x4d_r2 alexnet bagnet9 bam_resnet18 bisenet_resnet18_celebamaskhq bninception
        cbam_resnet18 centernet_resnet18_voc cgnet_cityscapes channelnet condensenet74_c8_g8 crunet56 crunet56b
        dabnet_cityscapes danet_resnetd50b_cityscapes darknet_tiny darknet53 darts deeplabv3_resnetd50b_voc densenet121
        densenet40_k12_cifar10 diapreresnet10 diapreresnet20_cifar10 diaresnet10 diaresnet20_cifar10 dicenet_wd5
        diracnet18v2 dla46c dpn68 drnd22 efficientnet_b0 efficientnet_edge_small_b espnetv2_wd2 fastscnn_cityscapes
        fastseresnet101b fbnet_cb fcn8sd_resnetd50b_voc fdmobilenet_wd4 fishnet99 fpenet_cityscapes fractalnet_cifar10
        ghostnet hardnet39ds hrnet_w18_small_v1 ibnb_resnet50 ibn_densenet121 ibn_resnet50 ibn_resnext50_32x4d
        ibppose_coco icnet_resnetd50b_cityscapes igcv3_wd4 inceptionresnetv1 inceptionresnetv2 inceptionv3 inceptionv4
        irevnet301 isqrtcovresnet18 jasper5x3 jasperdr10x5_en lednet_cityscapes lffd20x5s320v2_widerface
        lwopenpose2d_mobilenet_cmupan_coco menet108_8x1_g3 mixnet_s mnasnet_small mobilenet_wd4 mobilenet_wd4_cub
        mobilenetb_wd4 mobilenetv2_wd4 mobilenetv3_small_w7d20 msdnet22 nasnet_4a1056 nin_cifar10 ntsnet_cub
        nvpattexp116bazel76 octresnet10_ad2 octresnet20_ad2_cifar10 peleenet pnasnet5large polynet preresnet18_wd4
        preresnet20_cifar10 proxylessnas_cpu proxylessnas_cpu_cub pspnet_resnetd50b_voc pyramidnet101_a360
        pyramidnet110_a48_cifar10 quartznet5x5_en_ls regnetx002 regnetv002 res2net50_w14_s8 resattnet56
        resdropresnet20_cifar10 resnestabc14 resnet18_wd4 resnet20_cifar10 resnet10_cub resneta10 resnetd50b
        resnext14_32x2d resnext20_2x32d_cifar10 rir_cifar10 ror3_56_cifar10 scnet50 selecsls42 senet16 sepreresnet10
        sepreresnet20_cifar10 seresnet10 seresnet20_cifar10 seresnet10_cub seresnext50_32x4d shakedropresnet20_cifar10
        shakeshakeresnet20_2x16d_cifar10 sharesnet18 shufflenet_g1_wd4 shufflenetv2_wd2 shufflenetv2b_wd2
        simplepose_resnet18_coco sinet_cityscapes sknet50 sparsenet121 spnasnet squeezenet_v1_1 sqnxt23_w1 superpointnet
        bn_vgg11b visemenet20 voca8flame vovnet27s wrn50_2 wrn20_10_1bit_cifar10 wrn16_10_cifar10 xception
        xdensenet121_2 xdensenet40_2_k24_bc_cifar10 zfnet
    """,
    "gluoncv": """
        alexnet alpha_pose_resnet101_v1b_coco center_net_resnet18_v1b_voc cifar_resnet20_v1 cifar_resnext29_32x4d
        cifar_wideresnet16_10 danet_resnet50_citys deeplab_resnet50_citys deeplab_v3b_plus_wideresnet_citys densenet121
        dla34 fastscnn_citys fcn_resnet50_voc googlenet hrnet_w18_small_v1_c icnet_resnet50_citys inceptionv3
        mobilenet0.25 mobilenetv3_small monodepth2_resnet18_kitti_mono_640x192
        monodepth2_resnet18_posenet_kitti_mono_640x192 nasnet_4_1056 resnet18_v1b_0.89 psp_resnet50_ade
        faster_rcnn_resnet50_v1b_voc mask_rcnn_resnet18_v1b_coco custom_mask_rcnn_fpn cifar_residualattentionnet56
        resnest14 resnet18_v1 resnet18_v1b resnext50_32x4d senet_154 shufflenet_v1 siamrpn_alexnet_v2_otb15
        mobile_pose_mobilenetv3_small simple_pose_resnet18_v1b squeezenet1.1 ssd_300_mobilenet0.25_voc vgg11_bn xception
        darknet53 yolo3_mobilenet0.25_voc
        inceptionv1_ucf101 inceptionv3_ucf101 resnet18_v1b_kinetics400 vgg16_ucf101 c3d_kinetics400
        i3d_inceptionv1_kinetics400 i3d_inceptionv3_kinetics400 i3d_resnet50_v1_ucf101
        i3d_slow_resnet101_f16s4_kinetics700 p3d_resnet50_kinetics400 r2plus1d_resnet18_kinetics400
        slowfast_4x16_resnet50_kinetics400
    """,
}
