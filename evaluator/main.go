// Command portolan-cue evaluates CUE: it reads requests from standard input and writes responses to standard output, each
// a line of JSON (src/cue/protocol.rs).
//
// It opens no connection, and no file but /proc/self/status. An evaluation can't be interrupted, so the parent kills a
// process that takes too long.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	maxSource = 4 << 20
	// JSON may write a byte of the text as six.
	maxRequest = 6*maxSource + 1024
	// Time for the last evaluation after standard input was closed.
	grace = 10 * time.Second
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "portolan-cue: %v\n", err)
		os.Exit(1)
	}
}

// run reads in one goroutine and works in another, so that the end of the input ends the process whatever the work does.
func run(input io.Reader, output io.Writer) error {
	if err := limitProcess(); err != nil {
		return err
	}
	requests, ended := make(chan []byte), make(chan error, 1)
	go func() { ended <- serve(requests, output) }()
	lines := bufio.NewReader(input)
	for {
		line, err := readLine(lines)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		select {
		case requests <- line:
		case err := <-ended:
			return err
		}
	}
	close(requests)
	select {
	case err := <-ended:
		return err
	case <-time.After(grace):
		return nil
	}
}

func serve(requests <-chan []byte, output io.Writer) error {
	for request := range requests {
		if _, err := output.Write(answer(request)); err != nil {
			return err
		}
	}
	return nil
}

// readLine returns a line without its end. A line without an end is not complete.
func readLine(input *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := input.ReadSlice('\n')
		if len(line)+len(part) > maxRequest {
			return nil, fmt.Errorf("a message of more bytes exceeds the limit of %d", maxRequest)
		}
		line = append(line, part...)
		switch err {
		case nil:
			return line[:len(line)-1], nil
		case bufio.ErrBufferFull:
		default:
			return nil, err
		}
	}
}
