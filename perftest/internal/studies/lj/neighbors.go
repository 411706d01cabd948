package lj

// neighbors are the lists of atoms within reach: list[first[i]:first[i+1]] for atom i of the domain. A pair of the
// domain's atoms is in one of their lists; a pair with an atom of another rank is in the list of the domain's atom.
type neighbors struct {
	box   *box
	reach float64
	cells [axes]int // cells into which the box is divided, none shorter than reach

	heads []int32 // last atom of each cell, or -1
	next  []int32 // previous atom in the cell of each atom
	first []int32
	list  []int32
}

func newNeighbors(c *Config, b *box) *neighbors {
	n := &neighbors{box: b, reach: c.reach()}
	total := 1
	for k, length := range b.length {
		n.cells[k] = int(length / n.reach)
		total *= n.cells[k]
	}
	n.heads = make([]int32, total)
	return n
}

// build creates the lists of the first own positions.
func (n *neighbors) build(positions []position, own int) {
	n.fill(positions)
	n.first, n.list = append(n.first[:0], 0), n.list[:0]
	square := n.reach * n.reach
	for i := range own {
		at := n.cell(&positions[i])
		for _, x := range around(at[0], n.cells[0]) {
			for _, y := range around(at[1], n.cells[1]) {
				for _, z := range around(at[2], n.cells[2]) {
					n.append(positions, i, n.heads[n.index(x, y, z)], square)
				}
			}
		}
		n.first = append(n.first, int32(len(n.list)))
	}
}

// append adds the atoms of a cell to the list of atom i.
func (n *neighbors) append(positions []position, i int, j int32, square float64) {
	for ; j >= 0; j = n.next[j] {
		if int(j) <= i { // the list of the other atom contains the pair; atoms of other ranks follow those of the domain
			continue
		}
		if _, r := n.box.between(&positions[i], &positions[j]); r < square {
			n.list = append(n.list, j)
		}
	}
}

// fill assigns all positions to their cells.
func (n *neighbors) fill(positions []position) {
	for i := range n.heads {
		n.heads[i] = -1
	}
	n.next = n.next[:0]
	for i := range positions {
		at := n.cell(&positions[i])
		c := n.index(at[0], at[1], at[2])
		n.next = append(n.next, n.heads[c])
		n.heads[c] = int32(i)
	}
}

func (n *neighbors) cell(p *position) (at [axes]int) {
	for k, cells := range n.cells {
		at[k] = part(p[k], cells)
	}
	return at
}

func (n *neighbors) index(x, y, z int) int { return (x*n.cells[1]+y)*n.cells[2] + z }

// around returns the numbers beside i on the periodic edge, each once.
func around(i, n int) []int {
	switch n {
	case 1:
		return []int{0}
	case 2:
		return []int{0, 1}
	}
	return []int{(i - 1 + n) % n, i, (i + 1) % n}
}
