"""Where the methods come from: papers and the code that was published with them."""

from typing import NamedTuple


class Paper(NamedTuple):
    """A paper, by the number that it has on arXiv."""

    cited: str
    authors: str
    title: str
    venue: str
    arxiv: str

    def link(self) -> str:
        """Where it can be read."""
        return f"https://arxiv.org/abs/{self.arxiv}"


class Code(NamedTuple):
    """A repository on GitHub, and whose it is."""

    repository: str
    whose: str = "the authors' code"

    def link(self) -> str:
        """Where it lies."""
        return f"https://github.com/{self.repository}"


CAL = Paper(
    "Zhu et al. 2021",
    "Zhaowei Zhu, Tongliang Liu, Yang Liu",
    "A Second-Order Approach to Learning with Instance-Dependent Label Noise",
    "CVPR 2021",
    "2012.11854",
)
CAL_CODE = Code("UCSC-REAL/CAL")
PAPERS = {
    "cal": CAL,
    "cores": Paper(
        "Cheng et al. 2021",
        "Hao Cheng, Zhaowei Zhu, Xingyu Li, Yifei Gong, Xing Sun, Yang Liu",
        "Learning with Instance-Dependent Label Noise: A Sample Sieve Approach",
        "ICLR 2021",
        "2010.02347",
    ),
    "coteaching": Paper(
        "Han et al. 2018",
        "Bo Han, Quanming Yao, Xingrui Yu, Gang Niu, Miao Xu, Weihua Hu, Ivor Tsang, "
        "Masashi Sugiyama",
        "Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels",
        "NeurIPS 2018",
        "1804.06872",
    ),
    "coteaching_plus": Paper(
        "Yu et al. 2019",
        "Xingrui Yu, Bo Han, Jiangchao Yao, Gang Niu, Ivor W. Tsang, Masashi Sugiyama",
        "How does Disagreement Help Generalization against Label Corruption?",
        "ICML 2019",
        "1901.04215",
    ),
    "dmi": Paper(
        "Xu et al. 2019",
        "Yilun Xu, Peng Cao, Yuqing Kong, Yizhou Wang",
        "L_DMI: A Novel Information-theoretic Loss Function for Training Deep Nets Robust to "
        "Label Noise",
        "NeurIPS 2019",
        "1909.03388",
    ),
    "forward": Paper(
        "Patrini et al. 2017",
        "Giorgio Patrini, Alessandro Rozza, Aditya Krishna Menon, Richard Nock, Lizhen Qu",
        "Making Deep Neural Networks Robust to Label Noise: A Loss Correction Approach",
        "CVPR 2017",
        "1609.03683",
    ),
    "gce": Paper(
        "Zhang & Sabuncu 2018",
        "Zhilu Zhang, Mert R. Sabuncu",
        "Generalized Cross Entropy Loss for Training Deep Neural Networks with Noisy Labels",
        "NeurIPS 2018",
        "1805.07836",
    ),
    "jocor": Paper(
        "Wei et al. 2020",
        "Hongxin Wei, Lei Feng, Xiangyu Chen, Bo An",
        "Combating Noisy Labels by Agreement: A Joint Training Method with Co-Regularization",
        "CVPR 2020",
        "2003.02752",
    ),
    "peer": Paper(
        "Liu & Guo 2020",
        "Yang Liu, Hongyi Guo",
        "Peer Loss Functions: Learning from Noisy Labels without Knowing Noise Rates",
        "ICML 2020",
        "1910.03231",
    ),
    "ptd": Paper(
        "Xia et al. 2020",
        "Xiaobo Xia, Tongliang Liu, Bo Han, Nannan Wang, Mingming Gong, Haifeng Liu, Gang Niu, "
        "Dacheng Tao, Masashi Sugiyama",
        "Part-dependent Label Noise: Towards Instance-dependent Label Noise",
        "NeurIPS 2020",
        "2006.07836",
    ),
    "reweight_r": Paper(
        "Xia et al. 2019",
        "Xiaobo Xia, Tongliang Liu, Nannan Wang, Bo Han, Chen Gong, Gang Niu, Masashi Sugiyama",
        "Are Anchor Points Really Indispensable in Label-Noise Learning?",
        "NeurIPS 2019",
        "1906.00189",
    ),
}
CODE = {
    "cal": (CAL_CODE,),
    "ce": (CAL_CODE,),
    "cores": (Code("haochenglouis/cores"),),
    "coteaching": (Code("bhanML/Co-teaching"),),
    "coteaching_plus": (Code("xingruiyu/coteaching_plus"),),
    "dmi": (Code("Newbeeer/L_DMI"),),
    "forward": (Code("giorgiop/loss-correction"),),
    "gce": (Code("AlanChou/Truncated-Loss", "of others, the public implementation of this page"),),
    "jocor": (Code("hongxin001/JoCoR"),),
    "peer": (
        Code("gohsyi/PeerLoss", "of the experiments on tables, two classes"),
        Code("weijiaheng/Multi-class-Peer-Loss-functions", "for images, the code of this page"),
    ),
    "ptd": (Code("xiaoboxia/Part-dependent-label-noise"),),
    "reweight_r": (Code("xiaoboxia/T-Revision"),),
}
# Of other papers, what a page's own paper took its protocol from.
ALSO = {"ce": CAL}
