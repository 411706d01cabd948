package instr

// Sample is the result of the repetitions of one case.
type Sample struct {
	// Profile is the profile of a repetition with the most frequent count, including the device; of
	// equally frequent counts the smallest.
	Profile Profile
	// Reps is the number of counted repetitions, Interrupted the number of those that the scheduler
	// interrupted and that are not counted.
	Reps, Interrupted int
	// Min and Max are the smallest and largest Total of the counted repetitions.
	Min, Max int
	// Syscalls is the number of kernel entries in the repetition of Profile.
	Syscalls int

	mix map[Place]Mix // of the repetition of Profile
}

// Total is the number of instructions of one operation.
func (s Sample) Total() int { return s.Profile.Total() }

// Exact reports whether all counted repetitions had the same total.
func (s Sample) Exact() bool { return s.Reps > 0 && s.Min == s.Max }

// collector collects the repetitions of one case.
type collector struct {
	byCount     map[int]*group
	interrupted int
}

// group is the repetitions with equal counts, including the device.
type group struct {
	first    Profile
	mix      map[Place]Mix // of first
	syscalls int
	reps     int
	min, max int // of Total
}

// add adds a repetition. kinds counts its instructions by type; it is called for the first
// repetition with a count.
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

// sample returns the result; its Profile is nil without a counted repetition.
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
