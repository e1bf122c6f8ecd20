"""The broker's decisions about principals and logins: pure, without sockets, the event loop and clocks."""
