"""mosec: two workers in a row. Options are mosec's own (--port, --capacity, --timeout)."""

from mosec import Server, Worker

import stage


class First(Worker):
    def deserialize(self, data):
        return int(data)

    def forward(self, number):
        stage.occupy("a", number)
        return number


class Second(Worker):
    def forward(self, number):
        stage.occupy("b", number)
        return number

    def serialize(self, number):
        return str(number).encode()


if __name__ == "__main__":
    server = Server()
    server.append_worker(First, num=1)
    server.append_worker(Second, num=1)
    server.run()
