package archtest

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Words lists words that are not used, because they are not terms of the field, and the
// terms to use instead. Each line has the words; after the first bar the replacements;
// after an optional second bar the folders to which the line applies. Words with a star
// are rejected only in names, the others in names, comments and documents. CheckWords
// checks each part of a name: judgeAll contains "judge".
const Words = `
stranger strangers            | untrusted peer
whoever                       | the caller, or who it is
meet*                    | handshake
deaf ears* mute* hears*       | acceptPaused, eventFDs, unflagged, canReceive
rouse roused rouses lingering calm* nobody* | activate, cooldown, noAttention, invalidQPN
chore chores choring          | deferred work
consider* judge judged judges | evaluate, validate
farewell departing expel expelled settledown* | disconnectDeadline, disconnecting, forceClose, closeWhenIdle
blame* verdict verdicts relieve | failureStatus, stepResult, pollerLeaving
loosen tight* owe owes owed owing debt debts | trackUnposted, untrack, creditsDue
graveyard graves* bury* buried* limbo muster musters mustered | retired, drop, unread, launch
wind* tenant tenants chooser choosers | restartTimer, exclusivePort, DeviceFilter
ask* asks* loan loans         | targetOp, segments                 | uct/sm
gather* gathered* gathers*    | batch                              | uct/ib/dv
plain*                        | direct                             | uct/ib/dv
kick* kicks* volley* restless* | runOrSchedule, ping, neverIdle
heard* hearing* untold* nowhere* | nextLine, onActive, signalDue, discard
mail* letters* shelf* crew crews | Messenger, exchange, children
lull* hasty* glance* ailing mate* | pauses, idlePolls, pollHot, recovering, peerEP
doze dozes vacate vacates duties* | Park, BeginClose, engineOwner
doomed deserted* talked* everyone* crowded* | cannotEnd, allGone, used, allRanks, tooMany
alarmed* barren dice* innocent* wish* detained | alwaysAttention, idleSteps, random, preferred, quarantined
`

// phrases are rejected in comments and documents; each has its replacement.
var phrases = map[string]string{
	"leaves word":            "posts an event, or sets a word",
	"leave word":             "post an event, or set a word",
	"from the start of time": "a running index",
	"left word":              "has posted an event, or has set a word",
	"wrong door":             "wrong iface",
}

// word is one of Words.
type word struct {
	instead   string
	namesOnly bool
	folders   []string // nil: everywhere
}

// in reports whether the word is rejected in a folder.
func (w word) in(folder string) bool {
	return w.folders == nil || slices.ContainsFunc(w.folders, func(f string) bool {
		return folder == f || strings.HasPrefix(folder, f+"/")
	})
}

// parseWords parses a text in the format of Words.
func parseWords(text string) map[string]word {
	words := map[string]word{}
	for line := range strings.Lines(text) {
		parts := strings.Split(line, "|")
		if len(parts) < 2 {
			continue
		}
		w := word{instead: strings.TrimSpace(parts[1])}
		if len(parts) > 2 {
			w.folders = strings.Fields(parts[2])
		}
		for _, name := range strings.Fields(parts[0]) {
			name, w.namesOnly = strings.CutSuffix(name, "*")
			words[name] = w
		}
	}
	return words
}

// wordOfText matches the words of prose.
var wordOfText = regexp.MustCompile(`[A-Za-z]+`)

// partOfName matches the boundaries between the parts of a name: a capital after a small letter, and the capital before
// a small letter.
var partOfName = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`)

// partsOf returns the parts of a name in small letters: new, qp and table for newQPTable.
func partsOf(name string) []string {
	return wordOfText.FindAllString(strings.ToLower(partOfName.ReplaceAllString(name, "$1$3 $2$4")), -1)
}

// CheckWords reads all Go files and documents of a tree and returns the sorted places where they use one of the words in
// text. It does not check this package.
func CheckWords(tree fs.FS, text string) ([]string, error) {
	words := parseWords(text)
	var broken []string
	err := fs.WalkDir(tree, ".", func(name string, e fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case e.IsDir() && name != "." && (base == "testdata" || strings.HasPrefix(base, ".") || name == "internal/archtest"):
			return fs.SkipDir
		case e.IsDir():
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		switch path.Ext(base) {
		case ".go":
			broken = append(broken, goWords(name, source, words)...)
		case ".md":
			for i, line := range strings.Split(string(source), "\n") {
				broken = append(broken, proseWords(name, i+1, line, words)...)
			}
		}
		return nil
	})
	slices.Sort(broken)
	return broken, err
}

// goWords checks the names and comments of a file.
func goWords(name string, source []byte, words map[string]word) (broken []string) {
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		line := file.Line(pos)
		switch tok {
		case token.EOF:
			return broken
		case token.COMMENT:
			for i, l := range strings.Split(text, "\n") {
				broken = append(broken, proseWords(name, line+i, l, words)...)
			}
		case token.IDENT:
			for _, part := range partsOf(text) {
				if w, bad := words[part]; bad && w.in(path.Dir(name)) {
					broken = append(broken, fmt.Sprintf("%s:%d: %s: write %s", name, line, text, w.instead))
				}
			}
		}
	}
}

// proseWords checks a line of text.
func proseWords(name string, line int, text string, words map[string]word) (broken []string) {
	lower := strings.ToLower(text)
	for _, found := range wordOfText.FindAllString(lower, -1) {
		if w, bad := words[found]; bad && !w.namesOnly && w.in(path.Dir(name)) {
			broken = append(broken, fmt.Sprintf("%s:%d: %q: write %s", name, line, found, w.instead))
		}
	}
	for phrase, instead := range phrases {
		if strings.Contains(lower, phrase) {
			broken = append(broken, fmt.Sprintf("%s:%d: %q: write %s", name, line, phrase, instead))
		}
	}
	return broken
}
