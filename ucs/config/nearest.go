package config

// Nearest returns the known name with the smallest edit distance to name, and the first one if several have the same
// distance. It returns "" if known is empty.
func Nearest(name string, known []string) string {
	best, bestEdits := "", -1
	for _, k := range known {
		if d := edits(name, k); bestEdits < 0 || d < bestEdits {
			best, bestEdits = k, d
		}
	}
	return best
}

// edits returns the optimal string alignment distance of a and b: the number of insertions, deletions, substitutions and
// exchanges of adjacent characters that change a to b.
func edits(a, b string) int {
	row := func() []int { return make([]int, len(b)+1) }
	before, last, this := row(), row(), row()
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		this[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			this[j] = min(last[j]+1, this[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				this[j] = min(this[j], before[j-2]+1)
			}
		}
		before, last, this = last, this, before
	}
	return last[len(b)]
}
