package paper

// Commands of the study of UCX.
var (
	ucxLatency = &Run{Args: "-x rc -t put_lat -s 1-64k --rounds 5"}
	ucxInstr   = &Run{Args: "instructions --ops put,flush,idle,busy --switches --no-device -n 5 -s 1,8,64,98,128,256,1k,4k,8k"}
)

// layerParts are the parts whose instructions count for a layer's call.
const layerParts = ",part=verbs|uct|ucp"

// counted is the instructions of a call through the API of a layer.
func counted(r *Run, op, size, layer, alternative string) Value {
	return sum(r, "op="+op+",size="+size+",layer="+layer+",switch="+alternative+layerParts, "instructions")
}

func ucxPaper() *Paper {
	return &Paper{
		Name:    "ucx",
		Title:   "A Performance Study of UCX over InfiniBand",
		Authors: "N. Papadopoulou, L. Oden, P. Balaji, 2017",
		Machine: "Xeon E5-2699, ConnectX-4 EDR, UCX 1.0",
		Figures: []Figure{
			{ID: "5", Title: "Instructions of a put and of its flush over RC", How: Instructions,
				Lesson: "Layers add instructions to the put, and more to the flush.",
				Cases: []Case{
					{Name: "put 8 B, UCP over UCT", Value: over(counted(ucxInstr, "put", "8", "ucp", ""), counted(ucxInstr, "put", "8", "uct", "")), Unit: Times, Says: "slightly more", Place: "section III-C", Rule: between(1, 1.3)},
					{Name: "flush 8 B, UCP over UCT", Value: over(counted(ucxInstr, "flush", "8", "ucp", ""), counted(ucxInstr, "flush", "8", "uct", "")), Unit: Times, Says: "significantly more", Place: "section III-C", Rule: between(1.3, 10)},
				}},
		},
	}
}
