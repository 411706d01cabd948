package paper

func directVerbsPaper() *Paper {
	return &Paper{
		Name:    "direct-verbs",
		Title:   "In-Depth Evaluation of a Lower-Level Direct-Verbs API on InfiniBand-based Clusters: Early Experiences",
		Authors: "B. Michalowicz, K. K. Suresh, B. Ramesh, A. Shafi, H. Subramoni, M. Abduljabbar, D. K. Panda, 2023",
		Machine: "32 cores a node, ConnectX-6 HDR100",
	}
}
