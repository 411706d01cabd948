package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Rooms divide one package into rooms. Each file belongs to a room, and code of a room may
// use only names of its own room and of the rooms below it. A name may belong to another
// room than its file.
type Rooms struct {
	order []string            // rooms in the order of the text
	files map[string]string   // room by file name, with .go
	names map[string]string   // room by name
	uses  map[string][]string // by room, the rooms that it may use, directly or indirectly
}

// ParseRooms parses an assignment in the format that rooms/ucp.txt describes.
func ParseRooms(text string) (*Rooms, error) {
	r := &Rooms{files: map[string]string{}, names: map[string]string{}, uses: map[string][]string{}}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := r.parseLine(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	return r, r.close()
}

// parseLine parses a line that is not empty.
func (r *Rooms) parseLine(line string) error {
	head, list, _ := strings.Cut(line, ":")
	words := strings.Fields(head)
	if len(words) != 2 {
		return fmt.Errorf("%q is not of the form: room, uses or names, a room, a colon", head)
	}
	room := words[1]
	switch words[0] {
	case "room":
		if slices.Contains(r.order, room) {
			return fmt.Errorf("room %s is there twice", room)
		}
		r.order = append(r.order, room)
		return assign(r.files, list, ".go", room)
	case "uses":
		r.uses[room] = append(r.uses[room], strings.Fields(list)...)
		return nil
	case "names":
		return assign(r.names, list, "", room)
	}
	return fmt.Errorf("unknown keyword %s", words[0])
}

// assign assigns each word of a list, with a suffix, to a room.
func assign(to map[string]string, list, suffix, room string) error {
	for _, word := range strings.Fields(list) {
		if old, twice := to[word+suffix]; twice {
			return fmt.Errorf("%s is in %s and in %s", word, old, room)
		}
		to[word+suffix] = room
	}
	return nil
}

// close checks that all rooms exist and that no room is above itself, and computes the rooms that each room may use
// indirectly.
func (r *Rooms) close() error {
	for _, room := range sorted(r.uses) {
		if slices.Contains(r.uses[room], everywhere) {
			r.uses[room] = slices.DeleteFunc(slices.Clone(r.order), func(o string) bool { return o == room })
		}
	}
	for _, name := range sorted(r.names) {
		if room := r.names[name]; !slices.Contains(r.order, room) {
			return fmt.Errorf("%s is in %s, which is no room", name, room)
		}
	}
	closed := map[string][]string{}
	for _, room := range sorted(r.uses) {
		below := map[string]bool{}
		if err := r.collect(room, below); err != nil {
			return err
		}
		if below[room] {
			return fmt.Errorf("%s is above itself", room)
		}
		closed[room] = sorted(below)
	}
	r.uses = closed
	return nil
}

// collect adds the rooms that a room may use to below.
func (r *Rooms) collect(room string, below map[string]bool) error {
	if !slices.Contains(r.order, room) {
		return fmt.Errorf("%s is no room", room)
	}
	for _, used := range r.uses[room] {
		if below[used] {
			continue
		}
		below[used] = true
		if err := r.collect(used, below); err != nil {
			return err
		}
	}
	return nil
}

// permits reports whether code of room from may use names of room to.
func (r *Rooms) permits(from, to string) bool {
	return from == to || slices.Contains(r.uses[from], to)
}

// RoomCounts has the numbers of illegal uses by pair of rooms, "from -> to".
type RoomCounts map[string]int

// ParseRoomCounts parses the result of [RoomCounts.String].
func ParseRoomCounts(text string) (RoomCounts, error) {
	counts := RoomCounts{}
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var from, to string
		var count int
		if _, err := fmt.Sscanf(line, "%s -> %s %d", &from, &to, &count); err != nil || count < 1 {
			return nil, fmt.Errorf("line %d: %q is not of the form: from -> to number", n+1, line)
		}
		counts[from+" -> "+to] = count
	}
	return counts, nil
}

// String returns one line for each pair of rooms, sorted.
func (c RoomCounts) String() string {
	var b strings.Builder
	b.WriteString("# Illegal uses between rooms. No number may rise: see docs/design/0015-rooms.md.\n")
	for _, pair := range sorted(c) {
		fmt.Fprintf(&b, "%s %d\n", pair, c[pair])
	}
	return b.String()
}

// Compare returns a text for each pair of rooms whose number of illegal uses differs from the committed one: the uses if
// there are more, or the new line if there are fewer.
func (c RoomCounts) Compare(illegal []RoomUse) (broken []string) {
	found := CountRooms(illegal)
	pairs := sorted(c)
	for _, pair := range sorted(found) {
		if _, committed := c[pair]; !committed {
			pairs = append(pairs, pair)
		}
	}
	slices.Sort(pairs)
	for _, pair := range pairs {
		switch was, is := c[pair], found[pair]; {
		case is > was:
			broken = append(broken, fmt.Sprintf("%s: %d illegal uses, %d before:%s", pair, is, was, listPair(illegal, pair)))
		case is == 0:
			broken = append(broken, fmt.Sprintf("%s: no illegal use is left; delete its line", pair))
		case is < was:
			broken = append(broken, fmt.Sprintf("%s: fewer illegal uses than before; write this line: %s %d", pair, pair, is))
		}
	}
	return broken
}

// listPair returns the illegal uses of a pair of rooms, one per line.
func listPair(illegal []RoomUse, pair string) string {
	var b strings.Builder
	for _, u := range illegal {
		if u.pair() == pair {
			fmt.Fprintf(&b, "\n\t%s", u)
		}
	}
	return b.String()
}

// CountRooms returns the number of uses by pair of rooms.
func CountRooms(uses []RoomUse) RoomCounts {
	counts := RoomCounts{}
	for _, u := range uses {
		counts[u.pair()]++
	}
	return counts
}
