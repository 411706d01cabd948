package sp

// weights contains the weights of a point's neighbors on a line, from two below to two above.
type weights [5]float64

// fourth returns the weights of the fourth difference at position i of a line of n points, with
// one-sided forms next to the boundary, where it is not applied.
func fourth(i, n int) weights {
	switch i {
	case 0, n - 1:
		return weights{}
	case 1:
		return weights{0, 0, 5, -4, 1}
	case 2:
		return weights{0, -4, 6, -4, 1}
	case n - 3:
		return weights{1, -4, 6, -4, 0}
	case n - 2:
		return weights{1, -4, 5, 0, 0}
	}
	return weights{1, -4, 6, -4, 1}
}

// scaled returns w times f.
func (w weights) scaled(f float64) weights {
	for i := range w {
		w[i] *= f
	}
	return w
}

// run is a part of a line in which all points have the same weights.
type run struct {
	from, to int // positions
	w        weights
}

// runs divides positions [from, to) into the smallest number of runs.
func runs(w []weights, from, to int) (list []run) {
	for i := from; i < to; i++ {
		if n := len(list); n > 0 && list[n-1].w == w[i] {
			list[n-1].to++
			continue
		}
		list = append(list, run{i, i + 1, w[i]})
	}
	return list
}
