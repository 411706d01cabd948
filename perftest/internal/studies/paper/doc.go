// Package paper compares results of perftest with the figures of the papers that gucx implements.
//
// A Figure is data: the commands whose results it needs, and a Case for each value that the paper has,
// with where the paper has it and which Rule decides. Nothing here measures; a Runner runs commands, and
// a Store keeps their results, so that a run that was interrupted continues.
package paper
