package instr

// Sample is the result of the repetitions of one case.
type Sample struct {
	// Profile is of a repetition with the commonest count, device included; among
	// equally common ones the smallest.
	Profile Profile
	// Reps is how many repetitions were counted, Interrupted how many were not
	// because the scheduler took part in them.
	Reps, Interrupted int
	// Min and Max are the smallest and largest Total of the counted repetitions.
	Min, Max int
	// Syscalls is the number of kernel entries in Profile's repetition.
	Syscalls int

	mix map[Place]Mix // of Profile's repetition
}

// Total is the number of instructions of one operation.
func (s Sample) Total() int { return s.Profile.Total() }

// Exact reports whether every counted repetition had the same total.
func (s Sample) Exact() bool { return s.Reps > 0 && s.Min == s.Max }

// collector gathers the repetitions of one case.
type collector struct {
	byCount     map[int]*group
	interrupted int
}

// group is the repetitions with one count, device included.
type group struct {
	first    Profile
	mix      map[Place]Mix // of first
	syscalls int
	reps     int
	min, max int // of Total
}

// add enters a repetition. kinds counts its instructions by kind, if it is the first with its count.
func (c *collector) add(p Profile, syscalls int, kinds func() map[Place]Mix) {
	if c.byCount == nil {
		c.byCount = map[int]*group{}
	}
	total := p.Total()
	g := c.byCount[p.WithDevice()]
	if g == nil {
		g = &group{first: p, mix: kinds(), syscalls: syscalls, min: total, max: total}
		c.byCount[p.WithDevice()] = g
	}
	g.reps++
	g.min, g.max = min(g.min, total), max(g.max, total)
}

// sample sums up; its Profile is nil without a counted repetition.
func (c *collector) sample() Sample {
	s := Sample{Interrupted: c.interrupted}
	mode := 0
	for count, g := range c.byCount {
		if s.Reps == 0 {
			s.Min, s.Max = g.min, g.max
		}
		s.Min, s.Max = min(s.Min, g.min), max(s.Max, g.max)
		s.Reps += g.reps
		if g.reps > mode || g.reps == mode && count < s.Profile.WithDevice() {
			mode = g.reps
			s.Profile, s.mix, s.Syscalls = g.first, g.mix, g.syscalls
		}
	}
	return s
}
