package guard

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The model is an owner that withdraws a region and uses its place again, and a visitor that makes two
// visits with what it knew before. Every order of their steps is executed, with the code of Word, Look
// and Visit. The visitor has a store buffer: what it stores is visible to the owner later, in order. It
// may die at any moment.

// variant is how the two sides play, and which step is left out or in the wrong place.
type variant struct {
	fenced bool // the visitor executes the barrier; else the owner does for both
	cached bool // a later visit looks at the generation of the table, not at the key

	noBarrier    bool // of the owner, if the visitor has none
	lookFirst    bool // the owner looks at the guard before it clears the key
	checkFirst   bool // the visitor looks at the key before it enters
	leaveFirst   bool // the visitor leaves before its last access
	noWait       bool
	lateRaise    bool // the owner raises the generation after it has looked at the guard
	sameKey      bool // the place is used again with the same key
	sameNumber   bool // all visits show the same value
	anyOtherWait bool // the owner waits until no visit is in progress, instead of those that it saw
}

const (
	oldKey, newKey = 5, 6
	modelRegion    = 1
)

// Steps of the visitor, in each of its visits.
const (
	enterStep = iota
	checkStep
	loadStep
	storeStep
	leaveStep
	visitSteps
)

// Steps of the owner.
const (
	clearStep = iota
	raiseStep
	barrierStep
	lookStep
	waitStep
	freeStep
	ownerSteps
)

// state is everything at one moment. It is comparable, so that each state is visited once.
type state struct {
	shared     Word // the guard as the owner sees it
	own        Word // as the visitor does
	buffer     [6]buffered
	inBuffer   int
	key        uint64
	generation uint64

	visit, visitor int // step of the visitor, in which visit
	idle           uint64
	granted        bool
	checked        uint64 // generation of the table when the key was found; 0: never

	owner  int // step of the owner
	inside bool
	seen   uint64
	freed  bool
	dead   bool
}

// buffered is a store of the visitor: to its guard, or to the region.
type buffered struct {
	access bool
	guard  Word
}

// modelPeer is the visitor as Look sees it.
type modelPeer struct{ s *state }

func (p modelPeer) Present() bool { return !p.s.dead }
func (modelPeer) PID() int        { return 1 }

// model explores the states of a variant.
type model struct {
	variant
	known   map[state]bool
	unsafe  bool // freed memory was accessed
	waiting bool // the owner waited for a visit that it did not see
	stuck   bool // the memory is never freed
}

func explore(v variant) *model {
	m := &model{variant: v, known: map[state]bool{}}
	m.visit(state{key: oldKey, generation: 1})
	return m
}

// visit explores what can follow s.
func (m *model) visit(s state) {
	if m.known[s] {
		return
	}
	m.known[s] = true
	moved := false
	for _, step := range []func(*state) bool{m.visitorStep, m.drainStep, m.ownerStep, m.deathStep} {
		if next := s; step(&next) {
			moved = true
			m.visit(next)
		}
	}
	m.stuck = m.stuck || !moved && !s.freed
}

func (m *model) visitorStep(s *state) bool {
	if s.dead || s.visit == 2 {
		return false
	}
	order := [visitSteps]int{enterStep, checkStep, loadStep, storeStep, leaveStep}
	if m.checkFirst {
		order[0], order[1] = checkStep, enterStep
	}
	if m.leaveFirst {
		order[3], order[4] = leaveStep, storeStep
	}
	switch order[s.visitor] {
	case enterStep:
		s.idle = s.own.Enter(modelRegion, m.fenced)
		s.put(buffered{guard: s.own})
		if m.fenced {
			for m.drainStep(s) {
			}
		}
	case checkStep:
		s.granted = m.check(s)
	case loadStep:
		m.access(s)
	case storeStep:
		if s.granted {
			s.put(buffered{access: true})
		}
	case leaveStep:
		s.own.Leave(s.idle)
		if m.sameNumber {
			s.own = Word{}
		}
		s.put(buffered{guard: s.own})
	}
	if s.visitor++; s.visitor == visitSteps {
		s.visitor, s.visit, s.granted = 0, s.visit+1, false
	}
	return true
}

// check is the visitor's look at its right.
func (m *model) check(s *state) bool {
	if m.cached && s.checked != 0 {
		return s.checked == s.generation
	}
	if s.key != oldKey {
		return false
	}
	s.checked = s.generation
	return true
}

func (m *model) access(s *state) { m.unsafe = m.unsafe || s.granted && s.freed }

func (s *state) put(b buffered) {
	s.buffer[s.inBuffer] = b
	s.inBuffer++
}

// drainStep makes the oldest store of the visitor visible.
func (m *model) drainStep(s *state) bool {
	if s.inBuffer == 0 {
		return false
	}
	b := s.buffer[0]
	copy(s.buffer[:], s.buffer[1:])
	s.buffer[len(s.buffer)-1] = buffered{}
	s.inBuffer--
	if b.access {
		m.unsafe = m.unsafe || s.freed
	} else {
		s.shared = b.guard
	}
	return true
}

// deathStep ends the visitor. The owner learns it when the threads of the visitor have left their CPUs.
func (m *model) deathStep(s *state) bool {
	if s.dead {
		return false
	}
	for m.drainStep(s) {
	}
	s.dead = true
	return true
}

func (m *model) ownerStep(s *state) bool {
	if s.owner == ownerSteps {
		return false
	}
	order := [ownerSteps]int{clearStep, raiseStep, barrierStep, lookStep, waitStep, freeStep}
	if m.lookFirst {
		order = [ownerSteps]int{barrierStep, lookStep, clearStep, raiseStep, waitStep, freeStep}
	}
	if m.lateRaise {
		order = [ownerSteps]int{clearStep, barrierStep, lookStep, raiseStep, waitStep, freeStep}
	}
	switch order[s.owner] {
	case clearStep:
		s.key = 0
	case raiseStep:
		s.generation++
	case barrierStep:
		for !m.fenced && !m.noBarrier && m.drainStep(s) {
		}
	case lookStep:
		v, region := Look(modelPeer{s}, &s.shared)
		s.inside, s.seen = region == modelRegion, v.seen
	case waitStep:
		if s.inside && !m.noWait && !m.ended(s) {
			return false
		}
	case freeStep:
		s.freed, s.key = true, newKey
		if m.sameKey {
			s.key = oldKey
		}
	}
	s.owner++
	return true
}

// ended reports whether the owner can go on.
func (m *model) ended(s *state) bool {
	v := Visit{peer: modelPeer{s}, word: &s.shared, seen: s.seen}
	over := v.Over()
	if _, region := s.shared.Visits(); m.anyOtherWait && region != 0 && !s.dead {
		m.waiting = m.waiting || over
		return false
	}
	return over
}

// TestModel_IsSafe: no access follows the free, and the owner always comes to it.
func TestModel_IsSafe(t *testing.T) {
	for name, v := range map[string]variant{
		"the owner's barrier":                  {},
		"the visitor's barrier":                {fenced: true},
		"the owner's barrier and a generation": {cached: true},
		"the visitor's and a generation":       {fenced: true, cached: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := explore(v)
			assert.False(t, m.unsafe, "an access after the free")
			assert.False(t, m.stuck, "never freed")
			t.Logf("%d states", len(m.known))
		})
	}
}

// TestModel_EachStepIsNeeded: the model finds what each step prevents.
func TestModel_EachStepIsNeeded(t *testing.T) {
	for name, v := range map[string]variant{
		"no barrier":                      {noBarrier: true},
		"no barrier, with a generation":   {noBarrier: true, cached: true},
		"look before the key is cleared":  {lookFirst: true},
		"the same, with barriers":         {lookFirst: true, fenced: true},
		"check before the guard":          {checkFirst: true},
		"the same, with barriers ":        {checkFirst: true, fenced: true},
		"leave before the last access":    {leaveFirst: true},
		"no wait":                         {noWait: true},
		"a generation raised too late":    {lateRaise: true, cached: true},
		"the same, with barriers  ":       {lateRaise: true, cached: true, fenced: true},
		"a key that is used again":        {sameKey: true},
		"the same key, with the barriers": {sameKey: true, fenced: true},
	} {
		t.Run(name, func(t *testing.T) { assert.True(t, explore(v).unsafe) })
	}
}

// TestModel_NumbersAreForTheWait: without them, or without the comparison, the owner is safe too, but
// waits for visits that began after it cleared the key.
func TestModel_NumbersAreForTheWait(t *testing.T) {
	same := explore(variant{sameNumber: true})
	assert.False(t, same.unsafe)
	all := explore(variant{anyOtherWait: true})
	assert.False(t, all.unsafe)
	assert.True(t, all.waiting, "for another visit")
	assert.False(t, explore(variant{}).waiting)
}
